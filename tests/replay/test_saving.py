"""Savings and their intervals, what bounds a step, and faults that are removed together."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import diagnoses, together
from tests.replay.programs import STEP_NS, Loop, forecast
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.step_times import GivenStep
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.calibration import INTERVAL_PART
from traceanalyzer.replay.edits import Drop, DropSpans, DropWork, Edit, MoveToSideStream, Resize, Scale, merge_edits
from traceanalyzer.replay.rewrites import Batch, Compile, Fuse, GraphLaunch, Replace
from traceanalyzer.replay.run import PROCESS, Bound, Step, step_bound, unknown
from traceanalyzer.replay.saving import Forecast, drained_ns, evidence, possible_bounds


def measured(times_ms: float | list[float]) -> GivenStep:
    given = GivenStep.of(times_ms)
    assert given is not None
    return given


def loop(kernel_ns: int, **header: object) -> Trace:
    """Twenty ops a step."""
    built = Loop()
    built.trace.header.update(header)
    for at in range(0, 600_000, 30_000):
        built.op("aten::mul", at + 10_000, kernel_ns)
    return built.load()


@pytest.fixture(scope="module")
def cpu_bound() -> Forecast:
    return forecast(loop(3_000))


@pytest.fixture(scope="module")
def gpu_bound() -> Forecast:
    return forecast(loop(100_000))


def test_a_gpu_bound_step_is_known_whatever_the_slowdown(gpu_bound: Forecast) -> None:
    step = gpu_bound.step
    assert step.bound == "gpu"
    assert gpu_bound.base[0].ns == pytest.approx(20 * 101_000)
    assert step.unprofiled_ns == step.traced_ns  # recording makes no step shorter
    assert [base.ns for base in gpu_bound.base] == pytest.approx([20 * 101_000] * 3)
    assert step.low_ns <= step.unprofiled_ns < step.high_ns


def test_a_cpu_bound_step_is_shorter_without_the_profiler(cpu_bound: Forecast) -> None:
    step, slowdown = cpu_bound.step, cpu_bound.replays.slowdown
    assert step.bound == "cpu"
    assert step.traced_ns == pytest.approx(STEP_NS, rel=0.01)
    assert step.low_ns < step.unprofiled_ns < step.high_ns < step.traced_ns * 1.2
    assert 1 < slowdown.low < slowdown.typical < slowdown.high
    assert step.unprofiled_ns == pytest.approx(STEP_NS / slowdown.typical)
    assert step.basis.startswith("3 of 4 steps")


def test_a_single_step_begins_where_the_window_does() -> None:
    built = Loop(steps=1)
    for at in range(0, 600_000, 30_000):
        built.op("aten::mul", at + 10_000, 3_000)
    trace = built.load()
    start = int(trace.cpu["start_ns"].min())
    asked = Analysis(trace, (start + 200_000, start + STEP_NS)).index(Forecast)
    assert (forecast(trace).step.traced_ns, asked.step.traced_ns) == (STEP_NS, STEP_NS - 200_000)


def test_what_one_step_of_three_does_may_be_as_rare_as_never(cpu_bound: Forecast) -> None:
    begins = STEP_NS * np.array([1, 2, 3])
    once = cpu_bound.saving([DropSpans(begins[2:], begins[2:] + 480_000)])
    always = cpu_bound.saving([DropSpans(begins, begins + 160_000)])
    assert once.low_share < 0.2 * once.share
    assert always.low_share > 0.5 * always.share


def test_shapes_cost_more() -> None:
    plain, shapes = forecast(loop(3_000)), forecast(loop(3_000, record_shapes=1))
    assert shapes.step.unprofiled_ns < plain.step.unprofiled_ns


def test_recorded_python_calls_are_the_profilers() -> None:
    built = Loop(steps=4)
    built.trace.header["with_stack"] = 1
    for begin in built.begins:
        for i in range(100):
            built.trace.python(f"f.py({i}): f", begin + 500_000 + 2_000 * i, 1_000, python_id=i)
    built.op("aten::mul", 10_000, 3_000)
    quiet = Loop(steps=4)
    quiet.op("aten::mul", 10_000, 3_000)
    assert forecast(built.load()).replays.slowdown.typical > forecast(quiet.load()).replays.slowdown.typical


@pytest.mark.parametrize("given_ms", [0.55, 0.7, 0.9])
def test_a_given_step_pins_the_slowdown(cpu_bound: Forecast, given_ms: float) -> None:
    known = cpu_bound.pinned(measured(given_ms))
    assert known.base[0].ns == pytest.approx(given_ms * 1e6, rel=0.2)
    assert known.step.low_ns == known.step.high_ns == known.step.unprofiled_ns == given_ms * 1e6
    slowdown = known.replays.slowdown
    assert slowdown.low <= slowdown.typical <= slowdown.high < 1.2 * slowdown.low  # 2 % either way


def test_range_of_measured_steps_is_replayed_at_both_ends(cpu_bound: Forecast) -> None:
    known = cpu_bound.pinned(measured([0.7, 0.6, 0.8]))
    assert [round(step.ns, -3) for step in known.base] == pytest.approx([7e5, 8e5, 6e5], rel=0.01)
    assert (known.step.low_ns, known.step.unprofiled_ns, known.step.high_ns) == (600_000, 700_000, 800_000)
    assert known.step.measured


def test_what_no_replay_has_of_a_measured_step_stays(gpu_bound: Forecast) -> None:
    """Kernels cannot save more than they take, and a GPU that idles for most of the step is not its limit."""
    known = gpu_bound.pinned(measured(10.0))
    said = known.saving([Scale(known.program.work.entry, 0.0)])
    assert said.step_ns <= known.program.work.dur_ns.sum() / len(known.program.sample)
    assert known.step.bounds == ("cpu",)


def test_a_given_step_that_cannot_be_is_taken_as_given(gpu_bound: Forecast) -> None:
    for given_ms in (0.1, 50.0):
        known = gpu_bound.pinned(measured(given_ms))
        assert known.replays.slowdown.basis.startswith("no slowdown")
        saving = known.saving([Scale(known.program.work.entry, 0.5)])
        assert saving.step_ns == pytest.approx(saving.share * given_ms * 1e6)


def test_a_saving_lies_in_its_interval(gpu_bound: Forecast, cpu_bound: Forecast) -> None:
    for known in (gpu_bound, cpu_bound):
        for edit in (Scale(known.program.work.entry, 0.5), GraphLaunch(), Drop(np.arange(40, 80))):
            said = known.saving([edit])
            assert said.low_share <= said.share <= said.high_share <= 1
            assert said.low_ns <= said.step_ns <= said.high_ns
            assert said.step_ns == pytest.approx(said.share * known.step.unprofiled_ns, abs=1)


def test_less_cpu_work_saves_at_most_the_device_idle_time() -> None:
    """A residual alone reaches beyond: nothing is known of the device, and the step is no shorter than its work."""
    known = replace(forecast(loop(12_000)), wider=2.0)
    begins = known.program.sample.begin_ns
    pause = [DropSpans(begins + 600_000, begins + STEP_NS)]
    said = known.saving(pause)
    assert said.high_share == pytest.approx(known.step.idle_shares[1], abs=1e-4)
    _, above = known._residuals(pause, known.replays.edited(pause))
    assert said.share + above * np.sqrt(said.share * (1 - said.share)) > said.high_share
    on_top = known.saving(pause, given=[Drop(np.arange(40, 80))])
    assert on_top.high_share < said.high_share


def test_what_changes_some_work_leaves_most_of_the_rest(gpu_bound: Forecast) -> None:
    entries = gpu_bound.program.work.entry
    for part in (0.25, 0.5, 1.0):
        some = [Scale(entries[: int(len(entries) * part)], 0.5)]
        most = 1 - 0.8 * (1 - part) * 20 * 100_000 / gpu_bound.step.high_ns
        said = gpu_bound.saving(some)
        above = gpu_bound._residuals(some, gpu_bound.replays.edited(some))[1]
        unbounded = said.share + above * np.sqrt(said.share * (1 - said.share)) + unknown(said.share, PROCESS["gpu"])
        high = said.share + INTERVAL_PART["gpu"] * (min(unbounded, most) - said.share)
        assert said.high_share == pytest.approx(high, abs=1e-3)


def test_what_stands_for_others_may_be_shorter_too(gpu_bound: Forecast) -> None:
    """A fused kernel that takes longer than the first of its group is no work that the fix leaves alone."""
    entries = gpu_bound.program.work.entry
    fused = [Fuse(entries, np.zeros(len(entries), np.int64), [150_000.0])]
    below = gpu_bound.saving([Fuse(entries, np.zeros(len(entries), np.int64), [50_000.0])])
    assert gpu_bound.saving(fused).high_share == pytest.approx(below.high_share, abs=1e-3)


def test_what_a_saving_rests_on_is_told_by_its_edits(gpu_bound: Forecast) -> None:
    entries = gpu_bound.program.work.entry
    resting = {
        "measured": [Scale(entries, 0.5)],
        "gone": [Scale(entries, 0.5), DropWork(entries[:1])],
        "loops": [DropWork(entries[:1]), GraphLaunch()],
    }
    for group, edits in resting.items():
        left = gpu_bound.replays.edited(edits)
        assert evidence(edits, left) == group
        left.waits = np.zeros(1, bool)  # as where a wait was dropped
        assert evidence(edits, left) == ("loops" if group == "loops" else "waits")


def test_what_is_saved_on_top_of_other_edits_adds_up(cpu_bound: Forecast) -> None:
    first, second = [Drop(np.arange(40, 80))], [GraphLaunch()]
    alone, on_top = cpu_bound.saving(first), cpu_bound.saving(second, given=first)
    assert on_top.beyond
    assert not alone.beyond
    both = cpu_bound.saving([*first, *second])
    assert alone.share + on_top.share == pytest.approx(both.share)
    assert on_top.share < cpu_bound.saving(second).share


def test_what_the_bound_does_not_care_for_saves_nothing(gpu_bound: Forecast, cpu_bound: Forecast) -> None:
    assert cpu_bound.saving([Scale(cpu_bound.program.work.entry, 0.5)]).share == pytest.approx(0, abs=0.01)
    assert gpu_bound.saving([GraphLaunch()]).share == pytest.approx(0, abs=0.02)
    assert gpu_bound.saving([]).share == 0


def test_the_fixed_step_is_the_step_less_the_saving(gpu_bound: Forecast) -> None:
    edits = [Scale(gpu_bound.program.work.entry, 0.01), GraphLaunch()]
    said, after = gpu_bound.saving(edits), gpu_bound.fixed(edits)
    assert after.unprofiled_ns == pytest.approx(gpu_bound.step.unprofiled_ns - said.step_ns)
    assert after.low_ns <= after.unprofiled_ns <= after.high_ns
    assert after.bound == "cpu"


def test_edits_of_many_hits_are_one(cpu_bound: Forecast) -> None:
    every = cpu_bound.program.work.entry.tolist()
    edits: list[Edit] = [Resize([entry], [1_000.0]) for entry in every]
    edits += [Scale([entry], 0.5) for entry in every] + [Scale(every[:1], 0.1)]
    edits += [Resize([entry], 2_000.0) for entry in every]
    found = merge_edits(edits)
    assert [type(edit).__name__ for edit in found] == ["Resize", "Scale", "Scale", "Resize"]
    assert found[0].work.tolist() == every  # type: ignore[attr-defined]
    assert found[0].dur_ns.tolist() == [1_000.0] * len(every)  # type: ignore[attr-defined]
    assert found[3].dur_ns == 2_000.0  # type: ignore[attr-defined]


def test_groups_of_different_hits_stay_apart() -> None:
    fused = merge_edits([Fuse([1, 2], [0, 0]), Fuse([3, 4, 5], [0, 0, 1])])
    assert [edit.group.tolist() for edit in fused] == [[0, 0, 1, 1, 2]]  # type: ignore[attr-defined]
    batched = merge_edits([Batch([1], [2], [3]), Batch([5], [6], [0])])
    assert [list(edit.group) for edit in batched] == [[3, 4]]  # type: ignore[attr-defined]


def test_replacements_and_spans_join_where_they_are_alike() -> None:
    same = merge_edits([Replace([1], [2], [5.0, 6.0], 10), Replace([3], [4], [5.0, 6.0], 10)])
    assert len(same) == 1
    assert same[0].work_ns == [5.0, 6.0]  # type: ignore[attr-defined]
    each = merge_edits([Replace([1], [2], np.array([[5.0]]), 10), Replace([3], [4], np.array([[6.0]]), 10)])
    assert each[0].work_ns.tolist() == [[5.0], [6.0]]  # type: ignore[attr-defined]
    wider = Replace([5], [6], np.array([[7.0, 8.0]]), 10)
    found = merge_edits([Replace([1], [2], np.array([[5.0]]), 10), wider, Replace([3], [4], np.array([[6.0]]), 10)])
    assert [one.work_ns.tolist() for one in found] == [[[5.0], [6.0]], [[7.0, 8.0]]]  # type: ignore[attr-defined]
    assert len(merge_edits([DropSpans([1], [2]), DropSpans([1], [2], leaving_ns=5.0)])) == 2
    assert len(merge_edits([MoveToSideStream([1]), MoveToSideStream([2]), MoveToSideStream([3], [5.0])])) == 2
    assert len(merge_edits([Compile(np.array([1])), Compile([2]), GraphLaunch(), GraphLaunch()])) == 2


def test_merged_edits_save_what_the_single_ones_do(cpu_bound: Forecast) -> None:
    program = cpu_bound.program
    tops = np.unique(program.segments.top_op[program.segments.top_op >= 0])
    single = cpu_bound.saving([Drop([row]) for row in tops[::2].tolist()])
    assert single == cpu_bound.saving([Drop(tops[::2])])


def test_a_queue_that_earlier_steps_filled_is_their_time() -> None:
    """The CPU is 20 ns ahead when the sampled steps begin, and waits for all of it before the last mark ends."""
    steps: Any = SimpleNamespace(
        cpu_start_ns=np.array([0, 5, 15, 25]),
        cpu_end_ns=np.array([5, 15, 25, 55]),
        bounds_ns={0: np.array([5, 25, 35, 45, 55])},
    )
    sample: Any = SimpleNamespace(steps=np.array([1, 2, 3]))
    assert drained_ns(steps, sample) == 20  # 50 on the CPU, 30 on the device
    ahead: Any = SimpleNamespace(steps=np.array([0]))
    assert drained_ns(steps, ahead) == 0  # the queue grows: that is the CPU's time as it is


def test_queue_gaps_are_separate_from_device_work(gpu_bound: Forecast) -> None:
    """Nothing runs in them, so that what a CUDA graph saves is idle time, but no quicker CPU saves it."""
    step = gpu_bound.step
    assert (step.gpu_ns, step.gap_ns) == (20 * 100_000, 20 * 1_000)
    assert step.device_ns == round(gpu_bound.base[0].gpu_ns)
    assert step.idle_shares[0] == 0
    short = forecast(loop(3_000))
    known = short.saving([GraphLaunch()])
    busy = 1 - short.step.gpu_ns / short.step.unprofiled_ns
    assert known.share <= busy + 1e-3


@pytest.mark.parametrize(
    ("cpu_ns", "gpu_ns", "waits", "communication", "bound"),
    [
        (97.0, 90.0, True, 0.0, "cpu"),
        (96.9, 90.0, True, 0.0, "wait"),
        (96.9, 90.0, False, 0.0, "gpu"),  # nobody waits: the device is what is left
        (98.0, 98.1, True, 0.0, "gpu"),  # busier than the CPU
        (98.0, 98.0, True, 0.0, "cpu"),
        (10.0, 97.0, True, 0.0, "gpu"),
        (10.0, 96.9, True, 0.0, "wait"),
        (10.0, 99.0, True, 0.5, "gpu"),
        (10.0, 99.0, True, 0.51, "communication"),
    ],
)
def test_the_side_that_is_nearly_always_busy_bounds(
    cpu_ns: float, gpu_ns: float, waits: bool, communication: float, bound: str
) -> None:
    """Of 100 ns; collectives of another stream, and those that an edit took away, say nothing."""
    dur = np.array([100 * (1 - communication), 100 * communication, 500.0, 900.0])
    edited: Any = SimpleNamespace(
        waits=np.array([False, waits]),
        alive=np.array([True, True, True, False]),
        stream=np.array([1, 1, 0, 1]),
        dur_ns=dur,
        program=SimpleNamespace(work=SimpleNamespace(communication=np.array([False, True, True, True]))),
    )
    block: Any = SimpleNamespace(cpu_ns=cpu_ns, taken_ns=[5.0, gpu_ns])
    assert step_bound(edited, block, 100.0) == bound


def steps(*idle: tuple[float, Bound]) -> tuple[Step, Step, Step]:
    first, second, third = (Step(100.0, 0.0, 100.0 * (1 - share), 0.0, bound) for share, bound in idle)
    return first, second, third


@pytest.mark.parametrize(
    ("base", "bounds"),
    [
        (steps((0.2, "cpu"), (0.11, "cpu"), (0.3, "cpu")), ("cpu",)),
        (steps((0.2, "cpu"), (0.09, "gpu"), (0.3, "cpu")), ("gpu", "cpu")),
        (steps((0.0, "gpu"), (0.0, "gpu"), (0.09, "cpu")), ("gpu",)),
        (steps((0.0, "gpu"), (0.0, "gpu"), (0.11, "wait")), ("gpu", "wait")),
        (steps((0.2, "cpu"), (0.0, "communication"), (0.3, "wait")), ("communication", "wait")),
        (steps((0.2, "cpu"), (0.0, "wait"), (0.3, "gpu")), ("gpu", "cpu")),
    ],
)
def test_bound_is_open_if_one_slowdown_idles(base: tuple[Step, Step, Step], bounds: tuple[str, ...]) -> None:
    assert possible_bounds(base) == bounds


@pytest.mark.parametrize(
    ("given_ms", "why"),
    [
        (11.0, None),
        (11.1, "a step takes only 10.0 ms even with the profiler"),
        (4.5, None),
        (4.4, "the GPU alone is busy for 5.00 ms of each step"),
    ],
)
def test_measured_step_is_at_most_a_tenth_above_the_recorded(given_ms: float, why: str | None) -> None:
    program = SimpleNamespace(least_gpu_ns=5_000_000.0)
    known: Any = SimpleNamespace(step=SimpleNamespace(traced_ns=10_000_000), program=program)
    assert Forecast.doubt(known, given_ms) == why


def _write(folder: Path, variant: str, steps_ms: list[float], share: float | None) -> None:
    whole = None if share is None else {"unprofiled_ns": 1_000 * (1 - share)}
    trace = {"step": {"unprofiled_ns": 1_000}, "together": whole}
    (folder / f"lm.{variant}.json").write_text(json.dumps({"traces": [trace]}))
    (folder / f"lm.{variant}.meta.json").write_text(json.dumps({"unprofiled_step_ms": steps_ms}))


def test_what_the_fix_leaves_is_fixed_too(tmp_path: Path) -> None:
    _write(tmp_path, "bad", [30, 10, 20], 0.7)  # median 20
    _write(tmp_path, "fixed", [8, 7, 10], 0.25)  # median 8: 60 % saved, and a quarter of the other 40 %
    (row,) = together.record("here", tmp_path, tmp_path, "c0ffee")
    assert (row.program, row.source, row.commit, row.named) == ("lm", "here", "c0ffee", False)
    assert (row.true, row.said, row.left) == pytest.approx((0.6, 0.7, 0.25))
    assert row.error == pytest.approx(100 * (0.6 + 0.1 - 0.7), abs=1e-6)


def test_what_was_not_replayed_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "bad", [20], 0.7)
    _write(tmp_path, "fixed", [8], None)
    assert together.record("here", tmp_path, tmp_path, "c0ffee") == []


def test_named_programs_are_those_of_the_ledger() -> None:
    found = together.rows()
    sources = {row.source for row in found}
    for source in sources:
        named = {row.program for row in together.ledger.rows() if row.source == source}
        assert {row.program for row in found if row.source == source and row.named} == named
    errors = np.abs([row.error for row in found if row.named])
    assert len(errors) > 40
    assert np.mean(errors <= 10) >= 0.7


PAGE = """
## real/

| trace | finding | worth | verdict | evidence |
|---|---|---|---|---|
| gcn.eager | implicit-sync: boolean-mask, aten::index | saves 18 % | true | two masks |
| | implicit-sync: read-back, aten::item | saves 5 % | not first | loss.item() |
| vit.eager | exposed-copy: pageable | saves 28 % | true | 18 MiB a step |

## ranks/

| gcn.eager | implicit-sync: read-back, aten::item | saves 5 % | wrong | another folder |
"""


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ("| real/gcn.eager | `implicit-sync`: boolean-mask, aten::index | high | saves 17.7% |", "true"),
        ("| real/gcn.eager | `implicit-sync`: read-back, aten::item | medium | saves 5.0% |", "not first"),
        ("| real/vit.eager | `exposed-copy`: pageable, host to device | high | saves 27.7% |", "true"),
        ("| real/vit.eager | `implicit-sync`: read-back, aten::item | high | saves 9.0% |", ""),
        ("| noise/vit.eager | `exposed-copy`: pageable, host to device | high | saves 27.7% |", ""),
    ],
)
def test_the_verdict_is_that_on_the_same_trace_and_finding(row: str, verdict: str) -> None:
    assert diagnoses.judgement(row, PAGE) == verdict


def test_every_finding_in_real_programs_is_judged() -> None:
    rows = [line for line in diagnoses_table() if line.startswith(("| real/", "| public/"))]
    assert rows
    assert all(line.rstrip("| ").rpartition("|")[2].strip() in {"true", "not first", "wrong"} for line in rows)


def diagnoses_table() -> list[str]:
    """Lines of docs/accuracy.md."""
    return (diagnoses.JUDGEMENTS.parent / "accuracy.md").read_text(encoding="utf-8").splitlines()
