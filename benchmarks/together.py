"""What was said of all faults fixed, and what is known of it: `benchmarks/truth/together/*.csv`.

    python -m benchmarks.together record SOURCE TRACES --reports DIR --commit C
    python -m benchmarks.together

A pair differs in one fault, and its programs mostly have others, too: small launches, precision, waits. So what fixing
all of the bad program saves is held against what the one fix was measured to save and what the report of the fixed
program says that the others save. DIR holds `PROGRAM.bad.json` and `PROGRAM.fixed.json`, as
`traceanalyzer diagnose --format json` wrote them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ledger

TRUTH = ledger.TRUTH / "together"


@dataclass(frozen=True)
class Whole:
    """One measured pair as one commit said it; shares of the step without the profiler.

    Attributes:
        true: what the pair's fix saved.
        said: what the report of the bad program says that all faults cost.
        left: what the report of the fixed program says that all of its faults cost.
        named: whether a finding of the bad program names the pair's fault.
    """

    program: str
    source: str
    true: float
    said: float
    left: float
    named: bool
    commit: str

    @property
    def error(self) -> float:
        """What the pair's fix and then all others save, less what was said, in points."""
        return 100 * (1 - (1 - self.true) * (1 - self.left) - self.said)


def record(source: str, traces: Path, reports: Path, commit: str) -> list[Whole]:
    """The rows of all pairs in the folders `traces` and `reports`."""
    named = {row.program for row in ledger.rows() if row.source == source}
    result = []
    for path in sorted(reports.glob("*.bad.json")):
        program = path.name.removesuffix(".bad.json")
        pair = (traces / f"{program}.{variant}.json.gz" for variant in ("bad", "fixed"))
        said, left = (_together(reports / f"{program}.{variant}.json") for variant in ("bad", "fixed"))
        if said is not None and left is not None:
            true = ledger.measured_share(*pair)
            result.append(Whole(program, source, true, said, left, program in named, commit))
    return result


def _together(path: Path) -> float | None:
    trace: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["traces"][0]
    if not trace["together"]:
        return None
    return float(1 - trace["together"]["unprofiled_ns"] / trace["step"]["unprofiled_ns"])


def rows() -> list[Whole]:
    """All rows, source after source."""
    return [row for path in sorted(TRUTH.glob("*.csv")) for row in ledger.read(path, Whole)]


def sentence(found: Iterable[Whole]) -> str:
    """How near all faults together come, where the fault was named and for all programs."""
    every = list(found)
    parts = ((one for one in every if one.named), every)
    named, whole = ([abs(one.error) for one in part] for part in parts)
    return (
        f"Median error of the {len(named)} programs whose fault was named: {np.median(named):.1f} points, "
        f"{np.mean(np.array(named) <= 10):.0%} within 10; of all {len(whole)} programs: {np.median(whole):.1f}, "
        f"{np.mean(np.array(whole) <= 10):.0%}"
    )


def main() -> None:
    if sys.argv[1:2] == ["record"]:
        options = dict(zip(sys.argv, sys.argv[1:], strict=False))
        source, traces = sys.argv[2], Path(sys.argv[3])
        made = record(source, traces, Path(options["--reports"]), options["--commit"])
        ledger.write(TRUTH / f"{source}.csv", Whole, made)
        print(sentence(made))
        return
    for row in (every := rows()):
        print(f"{row.source + '/' + row.program:44} said {row.said:6.1%} error {row.error:+5.1f} named {row.named}")
    print(sentence(every))


if __name__ == "__main__":
    main()
