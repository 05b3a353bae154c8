"""Programs for the tests of the replay whose segments and work are given one by one, without a trace."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.replay.joint_ranks import rank_of
from traceanalyzer.model.arrays import no_rows
from traceanalyzer.model.step_times import StepEstimate
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.job_saving import Fixes, JobForecast, RankForecast, Side
from traceanalyzer.replay.peer_comparison import excess_by_rank
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.schedule import Block

GAP, OP, CALL, NODE, DRIVER = "gap", "op", "call", "node", "driver"
USUAL_NS = 10_000.0


class _Sample(SimpleNamespace):
    def __len__(self) -> int:
        return int(self.steps)


def made(
    *segments: tuple[str, int],
    steps: Sequence[int] = (),
    tops: Sequence[int] = (),
    kinds: Sequence[int] = (),
    launches: Sequence[int] = (),
    waits: Sequence[tuple[int, int, int]] = (),
    durs: Sequence[int] = (),
    talking: Sequence[int] = (),
) -> EditedProgram:
    """Segments of so many ns, one after the other; each is a row, an outermost op and a kind of its own unless told.

    Args:
        launches: segment of each piece of work, whose entries count down from 100.
        waits: first and last segment, and the work that the call itself launched.
        durs: of the work; 5 us each unless told. The gaps before it are 2 us and 50 ns by turns.
        talking: which pieces of work are communication.
    """
    size = len(segments)
    what, took = np.array([one for one, _ in segments]), np.array([ns for _, ns in segments])
    end = np.cumsum(took)
    number = np.arange(size)
    step = np.array(steps, np.int64) if steps else np.zeros(size, np.int64)
    cpu = took.astype(np.float64)
    parts: Any = SimpleNamespace(
        cpu_ns=cpu,
        gap=what == GAP,
        call=np.where((what == CALL) | (what == DRIVER), number, -1),
        driver=what == DRIVER,
        node=what == NODE,
        top_op=np.array(tops, np.int64) if tops else np.where(what == GAP, -1, number),
        usual_gap_ns=USUAL_NS,
        kind=np.array(kinds, np.int64) if kinds else number,
    )
    none, many = no_rows(), len(launches)
    entry = 100 - np.arange(many)
    launch = np.array(launches, np.int64)
    work: Any = SimpleNamespace(
        dur_ns=np.array(durs or [5_000] * many, np.float64), gap_ns=np.array([2_000.0, 50.0] * many)[:many],
        latency_ns=np.zeros(many), stream=np.zeros(many, np.int64), streams=1, entry=entry,
        by_entry=(entry[::-1], np.arange(many)[::-1]), edge_to=none, edge_from=none,
        communication=np.isin(np.arange(many), list(talking)),
    )  # fmt: skip
    segment, last, copy = (np.array([one[i] for one in waits], np.int64) for i in range(3))
    awaited: Any = SimpleNamespace(row=segment, last=last, copy=copy, segment=segment)
    timeline: Any = SimpleNamespace(start_ns=end - took, end_ns=end, step=step)
    sample: Any = _Sample(steps=int(step.max()) + 1)
    return EditedProgram(Program(sample, timeline, parts, work, launch, awaited, end - took, end))


def at(edited: EditedProgram, *places: int) -> np.ndarray:
    chosen = np.zeros(len(edited.kept), bool)
    chosen[list(places)] = True
    return chosen


MS, US = 1e6, 1e3


def hour(
    cpu_ns: dict[str, float],
    compute_ns: float = MS,
    *,
    calls: dict[str, float] | None = None,
    pause_ns: float = 0.0,
    kernels: dict[int, float] | None = None,
) -> Any:
    """What a rank does in a step, `loss` and `mm` as all do."""
    every = {"mm": MS, "loss": MS} | cpu_ns
    return SimpleNamespace(
        cpu_ns=every,
        calls=dict.fromkeys(every, 1.0) | (calls or {}),
        compute_ns=compute_ns,
        pause_ns=pause_ns,
        pause="before loss",
        kernels=kernels or {1: 8.0, 2: 2.0},
    )


def beyond(*hours: Any) -> dict[int, Any]:
    ranks = range(len(hours))
    return excess_by_rank(dict(zip(ranks, hours, strict=True)), dict.fromkeys(ranks, MS), dict.fromkeys(ranks, 10 * MS))


SLOWER = {"typical": 0.0, "low": 20.0, "high": -30.0, "recorded": 9_000.0}


def forecast_of(at: int, alone_ns: int, *, measured: bool = False, steps: float = 1.0, meets: bool = True) -> Any:
    low, high = (alone_ns, alone_ns) if measured else (alone_ns - 50, alone_ns + 50)
    step = StepEstimate(2_000 + at, alone_ns, low, high, f"bound of {at}", "alone", (), 10 * at, at)
    return RankForecast(step, steps, f"text of {at}", meets)


def job(compute_ns: Mapping[int, float], fixed_ns: Mapping[int, float] | None = None, **more: Any) -> JobForecast:
    """Ranks with one kernel of so long and a collective of 10 ns; where a finding is fixed, of another length."""

    def made(fixes: Fixes, side: Side) -> dict[int, Block]:
        took = {rank: (fixed_ns or {}).get(rank, 0.0) if done else compute_ns[rank] for rank, done in fixes.items()}
        return {rank: rank_of([ns + SLOWER[side]]) for rank, ns in took.items()}

    forecasts = {rank: forecast_of(rank, round(ns), **more) for rank, ns in compute_ns.items()}
    return JobForecast.of(forecasts, made, list(compute_ns))
