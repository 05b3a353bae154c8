"""Fits what the profiler adds to the CPU, and says how far that carries: `python -m benchmarks.fit_slowdown TRACES`.

Coordinate descent over the numbers of `traceanalyzer.replay.slowdown`, on the steps of all traces, and of the fixtures,
whose step without the profiler is known; a program that was recorded often counts less each time. With `--leave-out`,
also the errors of programs that a fit has not seen, in ten parts, each from a start that knows nothing but a constant
slowdown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibrate_replay import STEP_FOLDERS
from benchmarks.replay_case import Case
from benchmarks.replay_truth import at_hand, truth_ms
from traceanalyzer import load
from traceanalyzer.replay import slowdown
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.run import run

Numbers = tuple[float, ...]
Errors = NDArray[np.float64]

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = (
    *("gap_most", "op_most", "call_most", "host_op_most", "gap", "op", "call"),
    *("shapes", "python", "beyond_gap", "beyond_op", "beyond_call", "launch"),
)
LENGTHS = (0, 1, 2, 3, 8)  # of the numbers above; the others are shares
FACTORS, STEP = (1 / 1.5, 1.5), 0.04  # how lengths and shares are moved
UNKNOWN = frozenset({"pairs/recompile.bad"})  # compiling takes another time in every process
NEUTRAL = (
    *(5_000.0, 50_000.0, 20_000.0, 8_000.0, 0.57, 0.57, 0.57),
    *(0.0, 500.0, 0.05, 0.05, 0.05, 0.0),
)  # the slowdown is 1.75
PARTS = 10
MOST = 0.5  # of an error: what is further off is no better a guide


@dataclass(frozen=True)
class Known:
    """A program, its step without the profiler, and which program it is a recording of."""

    name: str
    program: Program
    true_ns: float

    @property
    def group(self) -> str:
        return self.name.split(".")[0]


def present() -> Numbers:
    """The numbers in the package."""
    s = slowdown
    return (*s._MOST_NS, *s._STAYS[:3], s._SHAPES[1], s._PYTHON_NS, *s._BEYOND[:3], s._LAUNCH_STAYS)


def errors(known: Sequence[Known], numbers: Numbers, refit: Callable[[Known], Program]) -> Errors:
    """Natural logarithm of said over true step of each."""
    gap, op, call, shapes, python, beyond_gap, beyond_op, beyond_call, launch = numbers[4:]
    values = {
        "_MOST_NS": np.array(numbers[:4]),
        "_STAYS": np.array([gap, op, call, op]),
        "_SHAPES": np.array([0.0, shapes, 0.0, shapes]),
        "_PYTHON_NS": python,
        "_BEYOND": np.array([beyond_gap, beyond_op, beyond_call, 0.0]),
        "_LAUNCH_STAYS": launch,
    }
    with patch.multiple(slowdown, **values):
        programs = [refit(one) for one in known]
        steps = [run(EditedProgram(p), p.segments.slowed.typical).ns for p in programs]
    return np.log(np.array(steps) / np.array([one.true_ns for one in known]))


def loss(known: Sequence[Known], found: Errors) -> float:
    """Mean error, every program as one, and how many are more than a fifth off."""
    groups = np.array([one.group for one in known])
    weight = np.array([1 / np.sqrt((groups == group).sum()) for group in groups])
    size = np.abs(found)
    far = 1 / (1 + np.exp(-(size - 0.18) / 0.02))
    return float(np.average(np.minimum(size, MOST) + 0.3 * far, weights=weight) + 0.5 * np.median(size))


def fitted(known: Sequence[Known], start: Numbers, refit: Callable[[Known], Program], rounds: int) -> Numbers:
    """Coordinate descent from `start`."""
    best, numbers = loss(known, errors(known, start, refit)), list(start)
    for _ in range(rounds):
        for place in range(len(numbers)):
            for move in FACTORS if place in LENGTHS else (-STEP, STEP):
                tried = list(numbers)
                tried[place] = tried[place] * move if place in LENGTHS else tried[place] + move
                if (value := loss(known, errors(known, tuple(tried), refit))) < best - 1e-4:
                    best, numbers = value, tried
    return tuple(numbers)


def said(words: str, found: Errors) -> None:
    size = np.abs(np.expm1(found))
    print(f"{words}: median error {np.median(size):.1%}, within 20 % {np.mean(size <= 0.2):.0%} of {len(size)}")


def read(traces: Path) -> tuple[list[Known], Callable[[Known], Program]]:
    """All that is known, and how its program is made again with other numbers."""
    known, cases = [], {}
    shared = sorted(path for folder in STEP_FOLDERS for path in traces.glob(f"{folder}/*.json.gz"))
    for path in [*filter(at_hand, shared), *sorted(FIXTURES.glob("*/*.json.gz"))]:
        name = f"{path.parent.name}/{path.name.removesuffix('.json.gz')}"
        if not Path(str(path).replace(".json.gz", ".meta.json")).exists():
            continue
        if path.name.endswith(".table.json.gz") or name in UNKNOWN:
            continue
        cases[name] = Case.of(load(path))
        known.append(Known(name, cases[name].program, truth_ms(path) * 1e6))
    return known, lambda one: _again(cases[one.name])


def _again(case: Case) -> Program:
    return Program.build(case.trace, case.work, case.nesting, case.steps, case.syncs)


def main() -> None:
    known, refit = read(Path(sys.argv[1]))
    said("as the package has it", errors(known, present(), refit))
    numbers = fitted(known, present(), refit, rounds=2)
    print(dict(zip(NAMES, np.round(numbers, 3).tolist(), strict=True)))
    said("fitted further", errors(known, numbers, refit))
    if "--leave-out" in sys.argv:
        groups = sorted({one.group for one in known})
        unseen, neutral = np.zeros(len(known)), errors(known, NEUTRAL, refit)
        for part in range(PARTS):
            mine = [place for place, one in enumerate(known) if groups.index(one.group) % PARTS == part]
            others = [one for place, one in enumerate(known) if place not in mine]
            numbers = fitted(others, NEUTRAL, refit, rounds=3)
            unseen[mine] = errors([known[place] for place in mine], numbers, refit)
        said("a constant slowdown", neutral)
        said("programs that the fit has not seen", unseen)


if __name__ == "__main__":
    main()
