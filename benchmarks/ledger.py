"""What was said of measured pairs, and what was true: `benchmarks/truth/*.csv`, from which intervals are made.

    python -m benchmarks.ledger record SOURCE TRACES --commit C [--reports DIR] [--fitted]
    python -m benchmarks.ledger show

A row is one measured pair as a commit said it. It is `fitted` if a rule, an edit or a constant was changed in view of
the pair before that commit; what was said before stays in the ledger as it was said, not fitted. Intervals are made of
rows that are not fitted (benchmarks/calibrate_replay.py), of each program the newest, and judged by rounds apart.
"""

from __future__ import annotations

import csv
import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from benchmarks.diagnoses import FIXTURES
from benchmarks.faults import FAULTS
from traceanalyzer import diagnose
from traceanalyzer.render.data.json import render_json
from traceanalyzer.replay.calibration import INTERVAL_PART

AnyRow = TypeVar("AnyRow")
TRUTH = Path(__file__).resolve().parent / "truth"
JUDGING = (
    "round2",
    "round4",
    "round14",
    "round16",
    "round19",
    "round21",
    "round22",
    "round23",
    "round24",
    "round25",
    "round26",
    "round27",
    "round28",
    "round29",
    "round30",
    "round31",
    "round32",
)  # of which no interval was ever made
ALLOWED = 0.02  # by which truth may lie outside the interval: what repeats of one program differ by
# Rules whose fix changes work on the device; those of all others take CPU time away or rewrite it.
_WORK = frozenset(
    (
        *("hidden-dtod-copy", "kernel-variance", "no-tensor-cores", "low-occupancy", "layout-conversion"),
        *("unfused-pointwise", "float64-math", "hand-written-attention", "strided-copy", "dtype-casts"),
        *("dense-gradient", "data-movement", "far-from-bound", "fft-length", "full-sort", "misaligned-gemm"),
        *("one-hot", "outside-autocast", "deterministic-algorithms", "exposed-communication", "throttling"),
        *("needless-collectives", "unused-gradient"),
    )
)


@dataclass(frozen=True)
class Row:
    """One measured pair as one commit said it; shares of the unprofiled step.

    Attributes:
        program, source: its name, and the collection that it is from.
        rule: of the finding that names the fault and saves most; `fault`: what one change of the program removes.
        bound: of the step of the bad program; `kind`: "work" where the fix changes work on the device, else "host".
        said, low, high: the saving of the finding's fault, as reported.
        spread: of the repeats of the bad program, longest over shortest less 1.
        steps: traced steps; `stacks`: whether Python's calls were recorded.
    """

    program: str
    source: str
    gpu: str
    rule: str
    fault: str
    bound: str
    kind: str
    said: float
    low: float
    high: float
    true: float
    spread: float
    stacks: bool
    fitted: bool
    commit: str

    @property
    def held(self) -> bool:
        """Whether the truth lies within the interval."""
        return self.low - ALLOWED <= self.true <= self.high + ALLOWED

    @property
    def error(self) -> float:
        """Truth less what was said, in points."""
        return 100 * (self.true - self.said)

    @property
    def scaled(self) -> float:
        """The same in units of sqrt(s (1 - s)) of what was said."""
        return (self.true - self.said) / max(float(np.sqrt(abs(self.said) * abs(1 - self.said))), 1e-3)


def rows() -> list[Row]:
    """All rows, source after source, the oldest first."""
    return [row for path in sorted(TRUTH.glob("*.csv")) for row in read(path, Row)]


def unfitted(found: Iterable[Row]) -> list[Row]:
    """Of each program the newest row that is not fitted."""
    newest = {(row.source, row.program): row for row in found if not row.fitted}
    return list(newest.values())


def fitted(found: Iterable[Row]) -> list[Row]:
    """Of each program the newest row, where that is fitted."""
    newest = {(row.source, row.program): row for row in found}
    return [row for row in newest.values() if row.fitted]


def calibrating(found: Iterable[Row]) -> list[Row]:
    """The rows that intervals are made of: not fitted, and of no round by which they are judged."""
    return [row for row in unfitted(found) if row.source not in JUDGING]


def judging(found: Iterable[Row]) -> list[Row]:
    """What was said of the programs that nobody had looked at before."""
    return [row for row in unfitted(found) if row.source in JUDGING]


def sentence(found: Iterable[Row]) -> str:
    """What README says of the intervals."""
    known = judging(found)
    errors, width = [abs(row.error) for row in known], [100 * (row.high - row.low) for row in known]
    held = statistics.mean(row.held for row in known)
    return (
        f"On {len(known)} unseen faults, the interval held the measured saving in {held:.0%}. The saving was "
        f"{statistics.median(errors):.1f} points off in the median ({statistics.mean(errors):.1f} on average), and the "
        f"interval {statistics.mean(width):.0f} points wide. {shortened(known)}"
    )


def shortened(judged: Sequence[Row]) -> str:
    """How often the parts of the reported intervals that are reported today hold, and how wide they are."""
    ends = [
        (row.said - part * (row.said - row.low) if row.low > 0 else row.low, row.said + part * (row.high - row.said))
        for row in judged
        for part in (INTERVAL_PART.get(row.bound, 1.0),)
    ]
    held = [low - ALLOWED <= row.true <= high + ALLOWED for row, (low, high) in zip(judged, ends, strict=True)]
    width = statistics.mean(100 * (high - low) for low, high in ends)
    return (
        f"The intervals of today's reports are shorter: they hold {np.mean(held):.0%} of the same faults, "
        f"{width:.0f} points wide."
    )


def read(path: Path, kind: type[AnyRow]) -> Iterator[AnyRow]:
    """The rows of a file, each a dataclass of this kind."""
    known: Any = kind
    with path.open(encoding="utf-8", newline="") as stream:
        for line in csv.DictReader(stream):
            yield known(**{field.name: _value(str(field.type), line[field.name]) for field in fields(known)})


def _value(kind: str, text: str) -> Any:
    return text == "yes" if kind == "bool" else float(text) if kind == "float" else text


def write(path: Path, kind: type[AnyRow], found: Sequence[AnyRow]) -> None:
    """Rows of this kind as a file, in place of what it held."""
    path.parent.mkdir(exist_ok=True)
    rows_of: Sequence[Any] = found
    with path.open("w", encoding="utf-8", newline="") as stream:
        out = csv.DictWriter(stream, [field.name for field in fields(cast(Any, kind))], lineterminator="\n")
        out.writeheader()
        out.writerows({name: _text(value) for name, value in asdict(row).items()} for row in rows_of)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def record(
    source: str, traces: Path, commit: str, reports: Path | None, is_fitted: bool, only: Sequence[str] = ()
) -> list[Row]:
    """The rows of all pairs of a source that `FAULTS` names, and whose fault the report names.

    Args:
        traces: folder with `PROGRAM.bad.json.gz`, `PROGRAM.fixed.json.gz` and their `.meta.json`.
        only: names of programs; all unless given.
        reports: folder with `PROGRAM.json` as `traceanalyzer diagnose --format json` wrote them; None to diagnose now.
    """
    result = []
    for name, rules in FAULTS.items():
        folder, _, program = name.partition("/")
        bad = _trace(traces, source, program, "bad")
        if folder == source and bad.exists() and (not only or program in only):
            said = _report(bad, reports and reports / f"{program}.json")
            row = _row(said, bad, _trace(traces, source, program, "fixed"), program, rules)
            if row is not None:
                result.append(Row(**row, source=source, fitted=is_fitted, commit=commit))
    return result


def _trace(traces: Path, source: str, program: str, variant: str) -> Path:
    if source == FIXTURES.name:
        return traces / program / f"{'good' if variant == 'fixed' else variant}.json.gz"
    return traces / f"{program}.{variant}.json.gz"


def _report(trace: Path, report: Path | None) -> dict[str, Any]:
    text = report.read_bytes() if report is not None else render_json(diagnose(trace))
    return dict(json.loads(text))


def _meta(trace: Path) -> dict[str, Any]:
    return dict(json.loads(Path(str(trace).replace(".json.gz", ".meta.json")).read_text(encoding="utf-8")))


def _times_ms(meta: Mapping[str, Any]) -> list[float]:
    """The repeats of the step without the profiler, the shortest first."""
    times = meta["unprofiled_step_ms"]
    return sorted(times) if isinstance(times, list) else [times]


def measured_share(bad: Path, good: Path) -> float:
    """What the fix saved of the unprofiled step, by the medians; by the meta files of two traces."""
    before, after = (statistics.median(_times_ms(_meta(trace))) for trace in (bad, good))
    return 1 - after / before


def _row(report: Mapping[str, Any], bad: Path, good: Path, program: str, rules: Sequence[str]) -> dict[str, Any] | None:
    trace, before = report["traces"][0], _meta(bad)
    faults = {fault["id"]: fault for fault in trace.get("faults") or []}
    own = [finding for finding in report["findings"] if finding["rule"] in rules]
    said = [(finding, (faults.get(finding.get("fault")) or finding)["saving"]) for finding in own]
    known = [(finding, saving) for finding, saving in said if saving]
    if not known:
        return None
    finding, saving = max(known, key=lambda one: one[1]["share"])
    repeats = _times_ms(before)
    return {
        "program": program,
        "gpu": trace["meta"]["devices"][0]["name"] if trace["meta"]["devices"] else "",
        "rule": finding["rule"],
        "fault": before.get("fault") or before.get("scenario") or finding["cause"] or finding["rule"],
        "bound": trace["step"]["bound"],
        "kind": "work" if finding["rule"] in _WORK else "host",
        "said": saving["share"],
        "low": saving["low_share"],
        "high": saving["high_share"],
        "true": measured_share(bad, good),
        "spread": repeats[-1] / repeats[0] - 1,
        "stacks": bool(trace["meta"].get("capabilities", {}).get("stacks")),
    }


def summary(found: Sequence[Row]) -> str:
    """One line on how near the rows are to the truth."""
    if not found:
        return "no rows"
    errors, width = (np.abs([row.error for row in found]), np.mean([100 * (row.high - row.low) for row in found]))
    return (
        f"{len(found)} pairs: mean error {errors.mean():.1f} points, median {np.median(errors):.1f}, "
        f"{np.mean(errors <= 10):.0%} within 10; interval held in {np.mean([row.held for row in found]):.0%}, "
        f"{width:.0f} points wide"
    )


def main() -> None:
    arguments = [text for text in sys.argv[1:] if not text.startswith("--")]
    options = dict(zip(sys.argv, sys.argv[1:], strict=False))
    if arguments and arguments[0] == "record":
        source, traces = arguments[1], Path(arguments[2])
        reports = Path(options["--reports"]) if "--reports" in options else None
        made = record(source, traces, options["--commit"], reports, "--fitted" in sys.argv)
        path = TRUTH / f"{source}.csv"
        known = read(path, Row) if path.exists() else ()
        write(path, Row, [*(row for row in known if row.commit != options["--commit"]), *made])
        print(summary(made))
        return
    every = rows()
    for row in unfitted(every):
        print(
            f"{row.source + '/' + row.program:36} {row.rule:24} {row.bound:5} {row.kind:5} true {row.true:6.1%} "
            f"said {row.said:6.1%} [{row.low:.0%}, {row.high:.0%}] {'' if row.held else 'out'} {row.scaled:+.2f}"
        )
    print("not fitted:", summary(unfitted(every)))
    print("fitted:    ", summary(fitted(every)))


if __name__ == "__main__":
    main()
