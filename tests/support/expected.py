"""Expected findings of the fixtures, of tests/programs and of the shared traces: text files in tests/expected.

    python -m tests.support.expected                                # prints the differences
    python -m tests.support.expected --write                        # rewrites the files
    python -m tests.support.expected --write fixtures/host-gap      # rewrites programs whose names begin with this

A program is one trace, or a job of several ranks. Its section has the measured and the predicted step as heading, and
one line per finding in the order of the report: severity, saving in points, rule, cause, place, title.
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache
from pathlib import Path

from tests.support.cached_reports import reported, reported_job
from tests.support.paths import REPOSITORY, SHARED
from traceanalyzer import Finding, Report
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.report import TraceReport
from traceanalyzer.model.units import format_ns

FOLDER = REPOSITORY / "tests/expected"
_RANK = re.compile(r"[.-]?rank\d+$")
# Tables and execution traces are no traces; tracing data flow distorted the timing of `dataflow`.
_LEFT_OUT = re.compile(r"\.(table|et)\.json|/et/|/dataflow/|/broken/")
_HEADING = "== "
_SHARED_SHARE = 20  # programs of a shared folder of which one is compared by `make test`


@dataclass(frozen=True)
class Program:
    """A trace or the ranks of a job, named "fixtures/host-gap/bad", "programs/chat_decode" or "pairs/topk.bad"."""

    name: str
    paths: tuple[Path, ...]

    @property
    def file(self) -> Path:
        """The file with its section: one per fixture, one per folder of shared traces, one for tests/programs."""
        folder = f"shared/{self.name.split('/')[0]}" if self.shared else self.name.rpartition("/")[0]
        return FOLDER / f"{folder}.txt"

    @property
    def shared(self) -> bool:
        """Whether a clone of the repository lacks the traces."""
        return self.paths[0].is_relative_to(SHARED)

    def section(self) -> list[str]:
        """Lines that say what `diagnose` reports of it."""
        try:
            report = reported(*self.paths) if len(self.paths) == 1 else reported_job(*self.paths)
        except TraceAnalyzerError as error:
            return [f"{_HEADING}{self.name}: {type(error).__name__}"]
        return [f"{_HEADING}{self.name}: {_steps(report)}", *map(_line, report.findings)]


@cache
def programs() -> tuple[Program, ...]:
    """Every program whose traces exist, sorted by name."""
    folders = ((REPOSITORY / "fixtures", "fixtures/"), (REPOSITORY / "tests/programs", "programs/"), (SHARED, ""))
    paths: dict[str, list[Path]] = {}
    for folder, prefix in folders:
        for path in sorted(folder.rglob("*.json.gz")):
            if not _LEFT_OUT.search(str(path)):
                name = prefix + str(path.relative_to(folder)).removesuffix(".json.gz")
                paths.setdefault(_RANK.sub("", name), []).append(path)
    return tuple(Program(name, tuple(paths[name])) for name in sorted(paths))


def selected_programs() -> list[Program]:
    """Programs that `make test` compares: all of the repository, a few of each shared folder."""
    folders: dict[Path, list[Program]] = {}
    for program in programs():
        folders.setdefault(program.file, []).append(program)
    return [program for group in folders.values() for program in (group[::_SHARED_SHARE] if group[0].shared else group)]


def expected_sections(file: Path) -> dict[str, list[str]]:
    """Name of each program -> its section in a file; empty if there is no file."""
    sections: dict[str, list[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        if line.startswith(_HEADING):
            name = line.removeprefix(_HEADING).split(": ")[0]
            sections[name] = []
        if line:
            sections[name].append(line)
    return sections


def differences(program: Program, section: Sequence[str]) -> list[str]:
    """Unified diff of the expected and this section of a program; empty if they are equal."""
    expected = expected_sections(program.file).get(program.name, [])
    return list(unified_diff(expected, section, f"{program.name}, expected", "now", n=0, lineterm=""))


def write(sections: Mapping[Program, Sequence[str]]) -> None:
    """Replaces the sections of these programs in their files. Sections of programs that are gone are dropped."""
    names = {program.name for program in programs()}
    for file in sorted({program.file for program in sections}):
        lines_by_name = {name: lines for name, lines in expected_sections(file).items() if name in names}
        lines_by_name |= {program.name: list(lines) for program, lines in sections.items() if program.file == file}
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "\n\n".join("\n".join(lines_by_name[name]) for name in sorted(lines_by_name))
        file.write_text(f"{text}\n", encoding="utf-8")


def _steps(report: Report) -> str:
    """The predicted step of each rank, alone and with all faults fixed; equal ones once."""
    return "; ".join(dict.fromkeys(_step(trace) for trace in report.traces))


def _step(trace: TraceReport) -> str:
    if trace.step is None:
        return "no step predicted"
    low, best, high = map(format_ns, (trace.step.low_ns, trace.step.unprofiled_ns, trace.step.high_ns))
    fixed = "" if trace.together is None else f", {format_ns(trace.together.unprofiled_ns)} if fixed"
    return f"step {best} ({low} to {high}){fixed}"


def _line(finding: Finding) -> str:
    saving = "" if finding.saving is None else f"{round(100 * finding.saving.share)} %"
    by = f"by {finding.by}" if finding.by else ""
    rank = "" if finding.rank is None else f"rank {finding.rank}"
    place = ", ".join(filter(None, (finding.cause, by, rank)))
    rule = f"{finding.rule} ({place})" if place else finding.rule
    return f"{finding.severity:6}{saving:>6}  {rule}: {finding.message}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[""], help="beginnings of the names of programs")
    parser.add_argument("--write", action="store_true", help="rewrite the files")
    options = parser.parse_args()
    chosen = [program for program in programs() if program.name.startswith(tuple(options.names))]
    with ProcessPoolExecutor() as pool:
        sections = dict(zip(chosen, pool.map(Program.section, chosen, chunksize=8), strict=True))
    if options.write:
        write(sections)
        return 0
    changes = [line for program, section in sections.items() for line in differences(program, section)]
    print(*changes, sep="\n")
    return int(bool(changes))


if __name__ == "__main__":
    sys.exit(main())
