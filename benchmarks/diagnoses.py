"""Which rules name the fault of a measured pair, and what the diagnosis says of programs in which little is wrong.

A part of docs/accuracy.md; `python -m benchmarks.accuracy TRACES --write` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from traceanalyzer import Finding, Severity, diagnose

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
JUDGEMENTS = Path(__file__).resolve().parent.parent / "docs" / "findings.md"
ENDING = ".json.gz"
_CELLS = 5  # of a row of docs/findings.md: trace, finding, worth, verdict, evidence
QUIET = ("pairs/clean_*", "noise/*", "real/*", "public/*")  # and fixtures/healthy

TITLE = "\n## Programs that nobody broke\n"
_HEAD = """
Does the report complain about programs without a fault? This table has everything above `info` in programs that were
written without one (`fixtures/healthy`, clean ones), in `noise` (one program four times, and with known changes, such
as the read-back `item`), and in `real` and `public` (models, other people's traces). Findings in the last two may be
right: [findings.md](findings.md) judges each against the raw events; **not first** means that something else matters
more. Savings are shares of the step without the profiler, costs shares of the window.

"""


def quiet_traces(traces: Path) -> list[Path]:
    """Traces in which little should be found."""
    shared = [path for pattern in QUIET for path in sorted(traces.glob(f"{pattern}{ENDING}"))]
    result = [*sorted((FIXTURES / "healthy").glob(f"*{ENDING}")), *shared]
    return [path for path in result if not path.name.endswith(f".table{ENDING}")]


def alarms(path: Path) -> list[str]:
    """Rows of one trace, without the judgement's cell."""
    name = f"{path.parent.name}/{path.name.removesuffix(ENDING)}"
    result = [finding for finding in diagnose(path).findings if finding.severity is not Severity.INFO]
    return [f"| {name} | {_label(one)} | {one.severity} | {_worth(one)} |" for one in result]


def _label(finding: Finding) -> str:
    cause, by = finding.cause and f": {finding.cause}", finding.by and f", {finding.by}"
    return f"`{finding.rule}`{cause}{by or ''}".replace("|", "/")[:110]


def _worth(finding: Finding) -> str:
    saved = finding.saving
    return f"saves {saved.share:.1%}" if saved else f"costs {finding.cost_share:.1%}"


def judgement(row: str, known: str) -> str:
    """The verdict of docs/findings.md on that trace and finding, or nothing."""
    trace, finding = (cell.strip() for cell in row.split("|")[1:3])
    label = finding.replace("`", "")
    same = [(name, said) for name, said in _judged(known).get(trace, ()) if label.startswith(_rule(name))]
    words = set(label.split())
    return max(same, key=lambda one: len(words & set(one[0].split())), default=("", ""))[1]


def _judged(known: str) -> dict[str, list[tuple[str, str]]]:
    """Findings and verdicts by folder/trace; a row without a trace is about the trace of the row before."""
    result: dict[str, list[tuple[str, str]]] = {}
    folder = trace = ""
    for line in known.splitlines():
        if line.startswith("## "):
            folder = line[3:].strip()
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == _CELLS:
            trace = cells[0] or trace
            result.setdefault(f"{folder}{trace}", []).append((cells[1], cells[3]))
    return result


def _rule(finding: str) -> str:
    return finding.partition(":")[0]


def part(found: Sequence[Sequence[str]]) -> str:
    """The text of this part of the page; `found` holds the rows of each quiet trace."""
    quiet = sum(not rows for rows in found)
    table = _alarm_table([row for rows in found for row in rows])
    return f"{TITLE}{_HEAD}{table}\nIn {quiet} of {len(found)} traces nothing is above `info`.\n"


def _alarm_table(rows: Sequence[str]) -> str:
    """The rows, with what docs/findings.md judges of them where there is such a page."""
    head, line = "| trace | finding | severity | worth |", "|---|---|---|---|"
    if JUDGEMENTS.exists():
        known = JUDGEMENTS.read_text(encoding="utf-8")
        head, line = f"{head} judgement |", f"{line}---|"
        rows = [f"{row} {judgement(row, known)} |" for row in rows]
    return "\n".join((head, line, *rows)) + "\n"


def measured(traces: Path) -> str:
    """Diagnoses all quiet traces, on two processes."""
    with ProcessPoolExecutor(2) as pool:
        return part(list(pool.map(alarms, quiet_traces(traces))))
