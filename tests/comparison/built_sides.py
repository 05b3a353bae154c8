"""Sides, axes, faults and rows of comparisons, built by hand."""

from types import SimpleNamespace
from typing import Any

import pandas as pd

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.comparison.compare import side_of
from traceanalyzer.comparison.compared_rows import ComparedRow
from traceanalyzer.comparison.result import Axes, Counted, DeviceAxis, Row, StepAxis, Verdict, Word, WorkSide
from traceanalyzer.comparison.sides import verdict_of
from traceanalyzer.comparison.snapshot import KnownFault, Snapshot, StepTime


def host(*rows: tuple[str, float, float], gpu: str = "H200", torch: str = "2.13") -> Any:
    """A side, by (name, count, mean in us) of what the host does in a step."""
    table = pd.DataFrame([(name, 0, count, 1e3 * us) for name, count, us in rows], columns=HOST)
    return SimpleNamespace(gpus=(gpu,), versions={"torch": torch}, tables={"host": table})


HOST = ["name", "part", "count", "mean_ns"]


def fault(rule: str, key: str, ns: int | None, step_ns: float = 10_000.0) -> KnownFault:
    share = None if ns is None else ns / step_ns
    return KnownFault(
        key=key, rules=(rule,), title=key, severity="low", share=share, low_share=share, high_share=share, step_ns=ns
    )


MS = 1_000_000
MORE = Counted("launches", 1, 2, (1, 1), (2, 2), Word.MORE)
EQUAL = Counted("launches", 1, 1, (1, 1), (1, 1), Word.SAME)


def axis(word: Word, difference: float, **more: Any) -> StepAxis:
    """A step of 100 ms that became so much longer."""
    new = round(100 * MS * (1 + difference))
    told = {"low": None, "high": None, "needed": 0.14, "pace": 1.0, "predicted": True, "measured": False}
    told |= {"base_bound": "gpu", "new_bound": "gpu", "captures": (1, 1)} | more
    return StepAxis(
        word=word,
        base_ns=100 * MS,
        new_ns=new,
        difference=difference,
        base_recorded_ns=0,
        new_recorded_ns=0,
        base_raw_ns=0,
        new_raw_ns=0,
        base_cpu_ns=None,
        new_cpu_ns=None,
        **told,
    )


def side(kind: str = "ProfilerStep", *, there: bool = True) -> Snapshot:
    step = StepTime(1, 1, 1, 1, True) if there else None
    return Snapshot("a.json", None, (), {}, (), kind, None, None, 1, step, None, {}, ())


def judged(step: StepAxis | None, exact: Counted = EQUAL, **more: Any) -> Verdict:
    device = DeviceAxis(1, 1, 0, more.pop("device", Word.SAME), {})
    sides = more.pop("sides", (side(), side()))
    inputs, fall = more.pop("inputs", ""), more.pop("waterfall", None)
    return verdict_of(Axes((exact,), device, step), ("because",), inputs, False, sides, fall)


def row(base: float | WorkSide | None, new: float | WorkSide | None, **more: Any) -> Row:
    """A row of so many executions a step on both sides."""
    sides = [side if side is None or isinstance(side, WorkSide) else of(side) for side in (base, new)]
    told: dict[str, Any] = {"op": "aten::mm", "outer": "", "region": "", "kind": "compute", "rung": "path"}
    told |= {"word": Word.SAME, "axis": "exact", "ratio": None, "p": None, "delta_ns": 0, "note": ""}
    return Row(**(told | {"base": sides[0], "new": sides[1]} | more))


def work_row(kind: str, op: str, base: tuple[float, float, float], new: tuple[float, float, float]) -> Row:
    """A row by executions, ns, and ns that nothing hides, of both sides."""
    sides = [of(count, ns, exposed_ns=exposed) for count, ns, exposed in (base, new)]
    return row(*sides, kind=kind, op=op)


def compared(
    ns: float, counts: tuple[float, float] = (100, 100), *, other: bool = True, op: str = "aten::mm"
) -> ComparedRow:
    shapes = "[[8, 4]]", "[[9, 4]]"
    sides = [of(count, ns / 2, shapes=text) for count, text in zip(counts, shapes, strict=True)]
    return ComparedRow(row(*sides, op=op), False, other)


def work(op: str, count: float, ns: float, **more: Any) -> Any:
    """A row of a work table."""
    told: dict[str, Any] = {
        "op": op,
        "outer": "",
        "annotation": "",
        "kind": "compute",
        "kernel": op,
        "name": op,
        "dims": "",
    }
    told |= {"types": "", "blocks": 1, "exposed_ns": ns, "least": count, "most": count}
    return SimpleNamespace(**(told | {"count": count, "ns": ns, "samples": [], "medians": []} | more))


def of(count: float = 1, ns: float = 1_000, **more: Any) -> WorkSide:
    told: dict[str, Any] = {"exposed_ns": ns, "median_ns": None, "kernels": ("k",), "shapes": "", "types": ""} | more
    return WorkSide(count=count, ns=ns, **told)


def snapshot(trace: TraceBuilder) -> Snapshot:
    ((one,),) = (capture.values() for capture in side_of(trace.load()))
    return one
