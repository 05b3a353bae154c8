"""Which fixtures there are, how each is recorded, and the page that lists them.

python -m capture.fixtures                 record all of them (needs a GPU)
python -m capture.fixtures --only healthy  record those of one folder
python -m capture.fixtures --readme        write fixtures/README.md from what is there
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from capture.damage import KINDS, SOURCE, write_broken
from capture.device import choose_device
from capture.errors import CaptureError
from capture.measure import Shown, measure, read_events
from capture.workload import discover

FOLDER = Path(__file__).resolve().parent.parent / "fixtures"
INTRODUCTION = """\
# Fixtures

Traces that torch.profiler recorded on a GPU, made by `python -m capture` as listed and by nothing else.
A rule's folder holds `bad`, which shows the pattern, and `good`, which differs in that one thing; `healthy`
deserves no finding; `broken` is damaged on purpose. Beside each trace, `.meta.json` gives versions, arguments
and the step times without the profiler (ms, three repeats, sorted). tests/expected/fixtures has the findings.
A folder of a rule that no pair can show has `unrecorded.txt`, which says why.

This page is written by `python -m capture.fixtures --readme`; `make fixtures` records everything anew.
"""
COLUMNS = (
    "trace",
    "steps",
    "kernels",
    "device idle",
    "longest gap",
    "first kernel after its launch",
    "buffer requests",
    "copies in addmm",
    "device syncs in steps",
    "worst / median of the main kernel",
)


@dataclass(frozen=True, slots=True)
class Fixture:
    """One recorded trace: `folder/name.json.gz` and what is beside it."""

    workload: str
    folder: str
    name: str
    shows: str
    tabled: bool
    switches: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """Arguments of `python -m capture`, from the repository's root."""
        table = [] if self.tabled else ["--no-table"]
        out = f"fixtures/{self.folder}"
        switches = [f"--{switch}" for switch in self.switches]
        return [self.workload, "--variant", self.name, *switches, *table, "--out", out, "--name", self.name]

    @property
    def files(self) -> list[str]:
        """What the command writes, relative to `fixtures`."""
        endings = [".json.gz", ".meta.json", *([".txt", ".table.json.gz"] if self.tabled else [])]
        return [f"{self.folder}/{self.name}{ending}" for ending in endings]


def all_fixtures() -> Iterator[Fixture]:
    """Every variant that says what it shows; the healthy ones last."""
    workloads = discover().values()
    for workload in sorted(workloads, key=lambda w: (w.name == "healthy", w.name)):
        for variant, shows in workload.shows.items():
            tabled = variant in workload.tabled
            yield Fixture(workload.name, workload.dashed, variant, shows, tabled, workload.switches)


def record(only: Sequence[str]) -> int:
    """Record each fixture in a process of its own, so that cold ones are cold."""
    chosen = [f for f in all_fixtures() if not only or f.folder in only]
    if not chosen:
        raise CaptureError(f"no workload records {', '.join(only)}; see python -m capture --list")
    if not choose_device("auto").is_gpu:
        raise CaptureError("no GPU: torch.cuda.is_available() is False; fixtures are recorded on one")
    for fixture in chosen:
        print(f"== fixtures/{fixture.folder}/{fixture.name}", flush=True)
        command = [sys.executable, "-m", "capture", *fixture.arguments, "--force"]
        code = subprocess.run(command, cwd=FOLDER.parent, check=False).returncode
        if code:
            return code
    return 0


def readme() -> str:
    """The text of fixtures/README.md, from the list, the traces and their meta.json."""
    recorded = list(all_fixtures())
    parts = [INTRODUCTION, "## Recorded\n"]
    for fixture in recorded:
        meta = json.loads((FOLDER / f"{fixture.folder}/{fixture.name}.meta.json").read_text())
        parts.append(_entry(fixture, meta))
    parts += ["## What the raw events show\n", _explain(), _line(COLUMNS), "|---" + "|--:" * (len(COLUMNS) - 1) + "|"]
    parts += [_row(fixture) for fixture in recorded]
    parts += ["\n## Broken\n", _broken()]
    return "\n".join(parts) + "\n"


def _entry(fixture: Fixture, meta: dict[str, object]) -> str:
    env = meta["env"]
    assert isinstance(env, dict)
    files = ", ".join(f"`{path}`" for path in fixture.files)
    machine = f"{env['gpu']}, torch {env['torch']}, CUDA {env['cuda']}, driver {env['driver']}"
    command = "python -m capture " + " ".join(fixture.arguments)
    shows = fixture.shows[0].upper() + fixture.shows[1:]
    return f"### {fixture.folder}/{fixture.name}\n\n{shows}.\n\n{files}; {machine}\n\n    {command}\n"


def _explain() -> str:
    return (
        "Counted by `capture/measure.py`, which shares nothing with the analyzer. Idle is the share of the\n"
        "time between the first and the last kernel, copy or memset in which the device does nothing.\n"
    )


@cache
def shown_in(path: str) -> Shown:
    """What a fixture, such as "healthy/gemm", shows."""
    return measure(read_events(FOLDER / f"{path}.json.gz"))


def _row(fixture: Fixture) -> str:
    shown = shown_in(f"{fixture.folder}/{fixture.name}")
    cells = (
        f"{fixture.folder}/{fixture.name}",
        shown.steps,
        shown.kernels,
        f"{shown.idle_share:.1%}",
        f"{shown.longest_gap_us / 1e3:.3f} ms",
        f"{shown.first_delay_us / 1e3:.3f} ms",
        shown.buffer_requests,
        shown.seed_copies,
        shown.syncs_in_steps,
        f"{shown.spread:.2f}",
    )
    return _line(cells)


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _broken() -> str:
    lines = [f"Made from `{SOURCE}` by `python -m capture.damage`, byte for byte the same each time.\n"]
    lines += ["| file | damage |", "|---|---|"]
    lines += [f"| `broken/{kind.file}` | {kind.what} |" for kind in KINDS]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Record, or write the page; exit code 2 when it could not run."""
    parser = argparse.ArgumentParser(prog="python -m capture.fixtures", description="Record the fixtures.")
    parser.add_argument("--only", metavar="FOLDER", action="append", default=[], help="repeatable")
    parser.add_argument("--readme", action="store_true", help="write fixtures/README.md only")
    args = parser.parse_args(argv)
    try:
        if not args.readme:
            code = record(args.only)
            if code:
                return code
            write_broken(FOLDER)
        (FOLDER / "README.md").write_text(readme(), encoding="utf-8")
    except (CaptureError, OSError) as error:
        print(f"capture: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
