"""Results of a comparison, made by hand: two recordings of which NEW is slower."""

from dataclasses import replace
from typing import Any

from tests.report.report_samples import MS
from traceanalyzer.comparison.result import (
    Axes,
    Comparison,
    Counted,
    FaultChange,
    Part,
    Row,
    StepAxis,
    Verdict,
    Waterfall,
    Word,
    WorkSide,
)
from traceanalyzer.comparison.snapshot import Source

SOURCE = Source(("a.json",), 1, (None,), None, ("NVIDIA H200",), {}, (), 4, "ProfilerStep")
STEP = StepAxis(
    word=Word.SLOWER,
    base_ns=10 * MS,
    new_ns=12 * MS,
    difference=0.2,
    low=0.1,
    high=0.3,
    needed=0.05,
    pace=1.0,
    predicted=True,
    measured=False,
    base_recorded_ns=15 * MS,
    new_recorded_ns=16 * MS,
    base_raw_ns=10 * MS,
    new_raw_ns=12 * MS,
    base_cpu_ns=9 * MS,
    new_cpu_ns=6 * MS,
    base_bound="cpu",
    new_bound="gpu",
    captures=(1, 1),
)
VERDICT = Verdict(Word.SLOWER, None, "why", "", ("first", "second"), "NEW is slower.")
WORK = WorkSide(4.0, 2e6, 1e6, 5e5, (), "", "")


def compared(**changes: Any) -> Comparison:
    """Without any difference, unless one is given."""
    plain = Comparison(SOURCE, SOURCE, VERDICT, Axes((), None, None), None, (), (), (), {}, (), ())
    return replace(plain, **changes)


def counted(name: str, base: float, new: float, word: Word = Word.MORE) -> Counted:
    return Counted(name, base, new, (base, base), (new, new), word, ("aten::mm",))


def fall(*deltas: int) -> Waterfall:
    parts = [Part("compute" if at else "idle", f"part {at}", 0, ns, ns) for at, ns in enumerate(deltas)]
    return Waterfall(10 * MS, 10 * MS + sum(deltas), tuple(parts), {})


def row(name: str, word: Word, **changes: Any) -> Row:
    plain = Row(name, "aten::linear", "", "compute", "op", word, "device", WORK, WORK, 1.2, 0.01, 900_000, "")
    return replace(plain, **changes)


def fault(status: str, **shares: float | None) -> FaultChange:
    given = {"said_share": 0.17, "low_share": 0.12, "high_share": 0.3, "got_share": None, **shares}
    return FaultChange(status, ("implicit-sync",), f"title of {status}", "high", base_ns=None, new_ns=None, **given)
