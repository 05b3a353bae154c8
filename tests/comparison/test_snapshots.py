"""What one recording is kept as: its steps, samples and counts of them, the faults that count, and one drawn step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.comparison.built_sides import snapshot
from tests.comparison.programs import ADDED, MM, US, built
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.comparison import recorded
from traceanalyzer.comparison.recorded import _chosen, _main_device, _step_time, known_faults
from traceanalyzer.comparison.work_tables import Chosen, _put_counts, _samples
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Severity
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.steps import Steps


def test_samples_are_spread_over_all_executions() -> None:
    """Of 32 every other, from the first on; of few all, in the order in which they ran."""
    number = np.array([*[0] * 16, 1, 1, *[0] * 16, 1, 2])
    dur = np.arange(len(number)) * 10
    many = dur[number == 0]
    found = _samples(number, dur, 4)
    assert found == [many[::2].tolist(), dur[number == 1].tolist(), dur[number == 2].tolist(), []]
    assert _samples(number[number == 0][:16], many[:16], 1) == [many[:16].tolist()]


def test_a_step_without_any_counts_for_the_least_of_all() -> None:
    """In four steps: two, three and none of the first; one each of the second."""
    number, step = np.array([0, 0, 1, 0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1, 1, 2, 3])
    table = pd.DataFrame(index=range(2))
    _put_counts(table, number, step, 4)
    assert table.to_dict("list") == {"count": [1.25, 1.0], "least": [0, 1], "most": [3, 1]}


def steps_of(phases: list[str | None], batches: list[int], **more: Any) -> Any:
    class _Steps(SimpleNamespace):
        def __len__(self) -> int:
            return len(phases)

    every = np.ones(len(phases), bool)
    told = {"steady": every, "cut": ~every, "phase": phases, "batch": np.array(batches)}
    return _Steps(**(told | {"of_work": np.arange(len(phases))} | more))


@pytest.mark.parametrize(
    ("steps", "chosen"),
    [
        (steps_of([None] * 4, [-1] * 4), [1, 2, 3]),  # not the first
        (steps_of([None], [-1]), [0]),
        (steps_of(["decode", "prefill", "decode", "decode"], [8, 8, 8, 8]), [2, 3]),
        (steps_of(["decode"] * 4, [8, 4, 4, 8]), [2]),  # as many of both: the smaller batch
        (steps_of([None] * 4, [-1] * 4, steady=np.array([False, True, True, True])), [2, 3]),
        (steps_of([None] * 4, [-1] * 4, cut=np.array([False, False, False, True])), [1, 2]),
        (steps_of([None] * 4, [-1] * 4, of_work=np.array([0, 1, -1, 3])), [1, 3]),  # one without work
        (steps_of([None] * 3, [-1] * 3, steady=np.zeros(3, bool)), [1, 2]),  # none is: all of them
    ],
)
def test_warm_steps_of_the_commonest_kind_are_chosen(steps: Any, chosen: list[int]) -> None:
    work: Any = None
    found = _chosen(work, steps, 0)
    assert np.flatnonzero(found.place >= 0).tolist() == chosen
    assert found.place[chosen].tolist() == list(range(found.count))
    assert (found.count, found.place[-1]) == (len(chosen), -1)


def test_device_with_the_longest_work_is_compared() -> None:
    device, start, end = np.array([3, 3, 5, 5]), np.array([0, 10, 0, 0]), np.array([5, 20, 9, 7])
    work: Any = SimpleNamespace(device=device, start_ns=start, end_ns=end)
    assert _main_device(work) == 5


@pytest.mark.parametrize(
    ("device", "cpu", "marked", "each"),
    [
        ((9, 10, 30), (9, 20, 20), True, (10, 30)),
        ((9, 10, 29), (9, 20, 20), True, (20, 20)),  # the CPU takes longer
        ((9, 10, 29), (9, 20, 20), False, (10, 29)),  # of a window without steps nobody knows
    ],
)
def test_recorded_step_is_the_longer_of_device_and_cpu(
    device: tuple[int, ...], cpu: tuple[int, ...], marked: bool, each: tuple[int, ...]
) -> None:
    steps: Any = SimpleNamespace(
        durations_ns=lambda of=None: np.array(cpu if of is None else device), marked=marked
    )
    head: Any = SimpleNamespace(step=None)
    found = _step_time(steps, Chosen(np.array([-1, 0, 1, -1]), 2, 0), head, None)
    mean = round(sum(each) / 2)
    assert (found.ns, found.recorded_ns, found.each_ns, found.predicted) == (mean, mean, each, False)


def fault(severity: Severity, share: float | None, *findings: int) -> Any:
    saving = (
        None if share is None else SimpleNamespace(share=share, low_share=share, high_share=share, step_ns=7)
    )
    return SimpleNamespace(severity=severity, saving=saving, findings=findings)


@pytest.mark.parametrize(
    ("severity", "share", "kept"),
    [
        (Severity.LOW, 0.001, True),
        (Severity.LOW, None, True),
        (Severity.INFO, 0.3, False),
        (Severity.INFO, -0.009, False),
        (Severity.INFO, -0.01, True),  # its fix makes the step longer: that explains a difference, too
        (Severity.INFO, None, False),
    ],
)
def test_faults_that_would_make_a_difference_are_stored(
    severity: Severity, share: float | None, kept: bool
) -> None:
    found: Any = [
        SimpleNamespace(rule=rule, cause="c", by=by)
        for rule, by in (("dense-gradient", None), ("implicit-sync", "x"))
    ]
    head: Any = SimpleNamespace(faults=[fault(severity, share, 2, 1), fault(Severity.HIGH, 0.5)])
    told = known_faults(head, found)
    assert len(told) == kept  # one without findings of this rank is not told
    if kept:
        assert (told[0].key, told[0].title) == ("implicit-sync|c|x", "implicit-sync: x")
        assert (told[0].rules, told[0].share) == (("implicit-sync", "dense-gradient"), share)


def test_counters_and_idle_time_are_those_of_a_step() -> None:
    one = snapshot(built([MM, ADDED], syncs=1, copies=2))
    totals = one.tables["totals"].set_index("counter")
    assert totals["count"].to_dict() == totals["least"].to_dict() == totals["most"].to_dict()
    counts = totals["count"]
    assert (counts["kernels"], counts["d2d copies"], counts["d2h copies"]) == (2, 2, 1)
    assert (counts["d2d bytes"], counts["d2h bytes"], counts["FLOPs"]) == (2 << 20, 4, 2 * 512**3)
    assert (counts["launches"], counts["synchronisations"], counts["ops"]) == (2, 1, 8)
    calls = one.tables["calls"]
    outer = calls[calls["counter"] == "ops"].set_index("name")["count"].to_dict()
    assert outer == {"aten::mm": 1, "aten::add": 1, "aten::clone": 2, "aten::item": 1}
    assert one.step is not None
    work, idle = one.tables["work"], one.tables["idle"]
    assert work["exposed_ns"].sum() + idle["ns"].sum() == pytest.approx(one.step.recorded_ns, rel=0.02)


def test_drawn_step_has_median_length_and_longest_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps of 1.1, 1.3, 1.2 and 1.4 ms, the first cold: of the rest that of 1.3 ms."""
    trace = TraceBuilder()
    begin = 0
    for step, long_us in enumerate((500, 700, 600, 800)):
        for at, (offset, dur, stream) in enumerate(((0, long_us, 7), (100, 50, 9), (900, 200, 7))):
            number = 10 * step + at + 1
            trace.launch("cudaLaunchKernel", begin + at * 10 * US, 3 * US, number)
            trace.kernel(begin + (50 + offset) * US, dur * US, number, stream=stream, name=f"k{step}{at}")
        length = (600 + long_us) * US
        trace.step(step, begin, length - 1)
        begin += length
    analysis = Analysis(trace.load())
    work, steps = analysis.index(DeviceWork), analysis.index(Steps)
    chosen = Chosen(np.array([-1, 0, 1, 2, -1]), 3, 0)
    lengths = steps.durations_ns(0).tolist()
    middle = lengths.index(sorted(lengths[1:])[1])
    drawn = recorded.strip_of(analysis.trace, work, steps, chosen)
    assert (drawn.length_ns, drawn.left_out) == (lengths[middle], 0)
    assert [(one.name, one.stream, one.dur_ns // US) for one in drawn.pieces] == [
        (f"k{middle}0", 0, (500, 700, 600, 800)[middle]),
        (f"k{middle}1", 1, 50),
        (f"k{middle}2", 0, 200),
    ]
    assert [one.start_ns - drawn.pieces[0].start_ns for one in drawn.pieces] == [0, 100 * US, 900 * US]
    both = recorded.strip_of(analysis.trace, work, steps, Chosen(np.array([-1, 0, 1, -1, -1]), 2, 0))
    assert both.length_ns == min(lengths[1:3])  # of two the shorter
    monkeypatch.setattr(recorded, "_MAX_PIECES", 2)
    short = recorded.strip_of(analysis.trace, work, steps, chosen)
    assert ([one.name for one in short.pieces], short.left_out) == ([f"k{middle}0", f"k{middle}2"], 1)
