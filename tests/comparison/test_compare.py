"""Comparisons of built programs and of the recorded fixtures: verdicts, axes, waterfall, and what must not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builder import TraceBuilder
from tests.comparison.programs import ADDED, MM, TANH, built
from tests.recorded import FIXTURES
from tests.rules.kernel_programs import Op
from traceanalyzer import BadOption, Comparison, Trace, compare
from traceanalyzer.comparison.compare import side_of
from traceanalyzer.comparison.jobs import job_notes, rank_changes
from traceanalyzer.comparison.ledger import COLUMNS, ledger_rows, ledger_text
from traceanalyzer.comparison.merging import Captures
from traceanalyzer.comparison.result import Counted, Word
from traceanalyzer.render.text.comparison import render_comparison
from traceanalyzer.rule.registry import all_rules

PAIRS = [folder for folder in sorted(FIXTURES.iterdir()) if (folder / "good.json.gz").exists()]
SHOWN = [
    folder for folder in PAIRS if folder.name in ("implicit-sync", "no-tensor-cores", "unfused-optimizer")
]


def counter(found: Comparison, name: str) -> Counted:
    return next(one for one in found.axes.exact if one.counter == name)


def sums(found: Comparison) -> bool:
    fall = found.waterfall
    assert fall is not None
    assert all(part.new_ns - part.base_ns == part.delta_ns for part in fall.parts)
    assert sum(part.base_ns for part in fall.parts) == fall.base_ns
    assert sum(of[2] for of in fall.groups.values()) == fall.new_ns - fall.base_ns
    busy = [part for part in fall.parts if part.by_count_ns is not None]
    assert all(
        (part.by_count_ns or 0) + (part.by_duration_ns or 0) + (part.by_overlap_ns or 0) == part.delta_ns
        for part in busy
    )
    return fall.base_ns + sum(part.delta_ns for part in fall.parts) == fall.new_ns


def test_a_trace_is_identical_to_itself() -> None:
    trace = built([MM, ADDED])
    found = compare(trace.load(), trace.load())
    assert found.verdict.word is Word.IDENTICAL
    assert {one.word for one in found.axes.exact} == {Word.SAME}
    assert {row.word for row in found.rows} == {Word.SAME}
    assert found.rungs["path"] == pytest.approx(1)
    assert sums(found)


@pytest.mark.parametrize("change", ["shuffled", "renumbered"])
def test_order_of_events_ids_and_processes_do_not_matter(change: str) -> None:
    trace = built([MM, ADDED], syncs=1)
    other = trace.shuffled(3) if change == "shuffled" else trace.renumbered()
    assert compare(trace.load(), other.load()).verdict.word is Word.IDENTICAL


def test_without_work_on_a_gpu_nothing_is_said() -> None:
    trace, other = TraceBuilder(), built([MM])
    trace.op("aten::mm", 1_000, 8_000)
    for one, two in ((trace, trace), (trace, other), (other, trace)):
        found = compare(one.load(), two.load())
        assert found.verdict.word is Word.UNKNOWN
        assert "no GPU work in" in found.verdict.headline
        assert found.waterfall is None
        assert len(found.to_frame()) == len(found.rows)


def test_work_that_runs_as_often_again_is_said_once() -> None:
    found = compare(built([MM, ADDED]).load(), built([MM, ADDED] * 4).load())
    told = "the same work runs 4 times as often in NEW (2 -> 8 kernels and copies a step)"
    assert [reason for reason in found.verdict.because if "times as often" in reason] == [told]
    once = compare(built([MM, ADDED]).load(), built([MM, ADDED, ADDED, ADDED]).load())
    assert not any("times as often" in reason for reason in once.verdict.because)


def with_functions(*names: str) -> Trace:
    """A program whose steps are in `main`, which calls these functions one after the other."""
    trace = built([MM, ADDED])
    steps = [event for event in trace.events if str(event.get("name")).startswith("ProfilerStep#")]
    for at, mark in enumerate(steps):
        begin, length = round(mark["ts"] * 1_000), round(mark["dur"] * 1_000)
        trace.python("train.py(7): main", begin + 1, length - 2, python_id=100 * at)
        for number, name in enumerate(names):
            part = length // (len(names) + 1)
            trace.python(f"{name}", begin + 2 + number * part, part, python_id=100 * at + number + 1)
    return trace.load()


def test_a_function_that_takes_the_difference_is_named() -> None:
    two, one = with_functions("lib/metric.py(9): compute", "train.py(3): load"), built([MM]).load()
    less = with_functions("train.py(30): load")
    assert not any("metric.py" in reason for reason in compare(two, one).verdict.because)  # no Python in NEW
    found = compare(two, less)
    assert found.verdict.because[0].startswith("lib/metric.py: compute is gone")
    renamed = compare(two, with_functions("lib/metric.py(9): evaluate", "train.py(3): load"))
    assert not any("metric.py" in reason for reason in renamed.verdict.because)


def test_a_later_clock_does_not_matter() -> None:
    trace = built([MM, ADDED])
    found = compare(trace.load(), trace.shifted(5_000_000).load())
    assert found.verdict.word in (Word.IDENTICAL, Word.SAME)
    assert found.axes.step is not None
    assert found.axes.step.difference == pytest.approx(0, abs=1e-6)


def test_jitter_of_kernels_is_the_same_program() -> None:
    found = compare(built([MM, ADDED]).load(), built([MM, ADDED], jitter=11).load())
    assert found.verdict.word is Word.SAME
    assert not [one for one in found.axes.exact if one.word is not Word.SAME]
    assert found.verdict.settle


def test_one_copy_more_is_told_by_the_exact_axis_with_its_op() -> None:
    found = compare(built([MM, ADDED]).load(), built([MM, ADDED], copies=1).load())
    copies = counter(found, "d2d copies")
    assert (copies.base, copies.new, copies.word, copies.where) == (0, 1, Word.MORE, ("aten::clone",))
    assert counter(found, "d2d bytes").new == 1 << 20
    first = found.rows[0]
    assert (first.word, first.outer, first.kind) == (Word.NEW, "aten::clone", "copy_d2d")
    assert sums(found)


def test_a_read_back_is_told_with_its_op_and_makes_the_step_slower() -> None:
    found = compare(built([MM, ADDED]).load(), built([MM, ADDED], syncs=1).load())
    waits = counter(found, "synchronisations")
    assert (waits.base, waits.new, waits.where) == (0, 1, ("aten::item",))
    back = compare(built([MM, ADDED], syncs=1).load(), built([MM, ADDED]).load())
    assert counter(back, "synchronisations").word is Word.FEWER
    assert back.axes.step is not None
    assert found.axes.step is not None
    assert 1 / (1 + back.axes.step.difference) - 1 == pytest.approx(found.axes.step.difference, abs=1e-6)


def test_a_slower_kernel_is_told_by_the_device_axis() -> None:
    found = compare(built([MM, ADDED]).load(), built([replace(MM, dur=700), ADDED]).load())
    row = found.rows[0]
    assert (row.op, row.word, row.axis, row.rung) == ("aten::mm", Word.SLOWER, "device", "path")
    assert row.ratio == pytest.approx(1.4, abs=0.01)
    assert found.verdict.word is Word.SLOWER
    assert found.axes.device is not None
    assert found.axes.device.word is Word.SLOWER
    assert sums(found)


def test_less_than_the_floor_is_no_difference_however_sure() -> None:
    found = compare(
        built([MM, ADDED], jitter=1).load(), built([replace(MM, dur=520), ADDED], jitter=1).load()
    )
    row = next(row for row in found.rows if row.op == "aten::mm")
    assert row.p is not None
    assert row.p < 0.01
    assert row.word is Word.SAME
    assert found.verdict.word is Word.SAME


def test_another_kernel_of_the_same_op_matches_by_path_and_says_so() -> None:
    simt = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(Params)"
    found = compare(built([MM]).load(), built([replace(MM, kernel=simt, dur=2_000)]).load())
    row = found.rows[0]
    assert (row.rung, row.word) == ("path", Word.SLOWER)
    assert "cutlass_80_simt_sgemm" in row.note


def test_other_sizes_as_often_are_other_inputs_and_no_verdict() -> None:
    wider = replace(MM, dims=[[528, 512], [512, 512]], dur=520)
    found = compare(built([MM]).load(), built([wider]).load())
    assert found.verdict.word is Word.UNKNOWN
    assert "other shapes" in found.verdict.why
    assert "528" in found.verdict.why


def test_other_grids_without_shapes_are_a_note() -> None:
    plain, wider = replace(MM, dims=(), types=()), replace(MM, dims=(), types=(), grid=264)
    found = compare(built([plain]).load(), built([wider]).load())
    (note,) = [note for note in found.notes if "grids" in note]
    assert note.startswith("for 100 % of GPU time the same kernels ran on other grids: perhaps other inputs")
    assert not any(
        "grids" in note for note in compare(built([MM]).load(), built([replace(MM, grid=264)]).load()).notes
    )


def test_more_executions_of_one_op_stay_one_row() -> None:
    found = compare(built([MM, ADDED]).load(), built([MM, ADDED, ADDED, ADDED]).load())
    rows = [row for row in found.rows if row.op == "aten::add"]
    assert len(rows) == 1
    assert rows[0].base is not None
    assert rows[0].new is not None
    assert (rows[0].word, rows[0].base.count, rows[0].new.count) == (Word.MORE, 1, 3)


def test_pointwise_ops_and_what_a_compiler_makes_of_them_match_by_family() -> None:
    eager = [replace(ADDED, name="aten::tanh", kernel=TANH), ADDED]
    fused = replace(ADDED, name="triton_poi_fused_add_tanh_0", kernel="triton_poi_fused_add_tanh_0", dims=())
    found = compare(built(eager).load(), built([fused]).load())
    assert found.rungs["family"] == pytest.approx(1)


def test_three_captures_a_side_give_an_interval() -> None:
    base = [built([MM, ADDED], jitter=seed).load() for seed in (7, 11, 13)]
    new = [built([replace(MM, dur=520), ADDED], jitter=seed).load() for seed in (7, 11, 13)]
    found = compare(base, new)
    step = found.axes.step
    assert step is not None
    assert step.captures == (3, 3)
    assert step.low is not None
    assert step.high is not None
    assert 0 < step.low < step.difference < step.high
    assert found.verdict.word is Word.SLOWER  # 3 %, which one capture a side cannot tell
    again = compare(base, [built([MM, ADDED], jitter=seed).load() for seed in (17, 19, 5)])
    assert again.verdict.word is Word.SAME
    assert again.axes.step is not None
    low, high = again.axes.step.low or 0, again.axes.step.high or 0
    assert again.verdict.within == pytest.approx(max(abs(low), abs(high)))
    assert low < 0 < high


@pytest.mark.parametrize("folder", PAIRS if all_rules() else [], ids=lambda folder: folder.name)
def test_every_recorded_pair_adds_up(folder: Path) -> None:
    assert sums(compare(folder / "bad.json.gz", folder / "good.json.gz"))


@pytest.mark.parametrize("folder", SHOWN, ids=lambda folder: folder.name)
def test_a_fault_that_is_gone_is_named_first(folder: Path) -> None:
    found = compare(folder / "bad.json.gz", folder / "good.json.gz")
    first = found.faults[0]
    assert first.status == "gone"
    assert folder.name in first.rules
    assert folder.name in found.verdict.because[0]
    back = compare(folder / "good.json.gz", folder / "bad.json.gz")
    assert folder.name in next(fault for fault in back.faults if fault.status == "new").rules


def test_a_timed_step_is_what_the_verdict_is_of() -> None:
    trace, other = built([MM, ADDED], syncs=1).load(), built([MM, ADDED]).load()
    found = compare(trace, other, base_ms=2.0, new_ms=1.0)
    step = found.axes.step
    assert step is not None
    assert (step.base_ns, step.new_ns, step.measured) == (2_000_000, 1_000_000, True)
    assert found.verdict.word is Word.FASTER
    assert sums(found)
    with pytest.raises(BadOption, match="says nothing of the other"):
        compare(trace, other, base_ms=2.0)
    with pytest.raises(BadOption, match="not a positive time"):
        compare(trace, other, base_ms=-2.0, new_ms=1.0)


def test_a_fault_that_alone_is_gone_has_said_and_got_and_a_row_of_the_ledger() -> None:
    folder = FIXTURES / "no-tensor-cores"
    found = compare(folder / "bad.json.gz", folder / "good.json.gz", base_ms=10.0, new_ms=3.0)
    (gone,) = [fault for fault in found.faults if fault.status == "gone"]
    assert gone.said_share is not None
    assert gone.got_share == pytest.approx(0.7)
    (row,) = ledger_rows(found, 0.02)
    assert tuple(row) == COLUMNS
    assert (row["rule"], row["true"], row["spread"], row["fitted"]) == (
        "no-tensor-cores",
        "0.7000",
        "0.0200",
        "no",
    )
    text = ledger_text([row], ledger_text([row], ""))
    assert text.count("\n") == 3
    predicted = compare(folder / "bad.json.gz", folder / "good.json.gz")
    assert {one["fitted"] for one in ledger_rows(predicted, None)} == {"yes"}


def ranks_of(*ops: Sequence[Op]) -> dict[int, Trace]:
    return {rank: built(own).load() for rank, own in enumerate(ops)}


def test_jobs_are_compared_by_the_rank_that_sets_the_pace() -> None:
    slow = replace(MM, dur=900)
    found = compare(ranks_of([MM], [slow]), ranks_of([slow], [MM]))
    assert (found.base.rank, found.new.rank) == (1, 0)
    assert found.axes.step is not None
    assert abs(found.axes.step.difference) < 0.01
    assert [one.word for one in found.ranks] == [Word.SLOWER, Word.FASTER]


def test_ranks_of_one_role_do_the_same_work() -> None:
    tanh = replace(ADDED, name="aten::tanh", kernel=TANH, dur=500)
    found = compare(ranks_of([MM], [MM], [tanh]), ranks_of([MM], [MM, MM], [tanh], [tanh]))
    assert [one.roles for one in found.ranks] == [(0, 0), (0, 0), (1, 1), (None, 1)]
    text = render_comparison(found)
    assert "rank 2 (work 1): " in text
    assert "rank 3 (work 1): missing -> " in text
    changed = compare(ranks_of([MM], [tanh]), ranks_of([tanh], [replace(tanh, name="aten::relu")]))
    assert [one.roles for one in changed.ranks] == [(0, 1), (1, 2)]
    assert {one.word for one in changed.ranks} == {Word.UNKNOWN}
    assert "ranks that do other work in NEW: 0, 1" in changed.notes
    compiled = compare(ranks_of([MM], [tanh]), ranks_of([ADDED], [replace(tanh, name="aten::relu")]))
    assert [one.roles for one in compiled.ranks] == [(0, 0), (1, 1)]  # all is new: by rank


def test_ranks_that_are_missing_are_said() -> None:
    found = compare(ranks_of([MM], [MM]), ranks_of([MM], [MM], [MM]))
    assert "ranks in NEW only: 2" in found.notes
    assert found.ranks[2].base_ns is None


def waiting(*ns: int, culprit: int | None) -> dict[int | None, Captures]:
    """Ranks that wait so long in each recorded step, and the one that a report says they wait for."""
    (one,) = (capture[None] for capture in side_of(built([MM]).load()))
    return {
        rank: Captures.of([replace(one, rank=rank, waiting_ns=waits, culprit=rank == culprit)])
        for rank, waits in enumerate(ns)
    }


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, 1, "rank 1 became late: others wait up to 6.00 ms a step more than it"),
        (1, None, "rank 1 is late no more: others waited up to 3.00 ms a step more than it"),
        (1, 1, "rank 1 is late in both: others wait 3.00 ms and 6.00 ms a step for it"),
        (None, None, None),
    ],
)
def test_who_is_late_is_said(before: int | None, after: int | None, told: str | None) -> None:
    sides = waiting(3_000_000, 0, culprit=before), waiting(6_000_000, 0, culprit=after)
    assert job_notes(*sides, rank_changes(*sides)) == ([told] if told else [])


def with_modules(*names: str) -> Trace:
    """Two products a step, each in a module of its own."""
    trace = built([MM, replace(MM, dur=300)])
    ops = [event for event in trace.events if event.get("name") == "aten::mm"]
    for at, event in enumerate(ops):
        begin = round(event["ts"] * 1_000)
        trace.python(
            f"nn.Module: {names[at % 2]}", begin - 500, round(event["dur"] * 1_000) + 900, python_id=at
        )
    return trace.load()


def test_modules_are_part_of_the_path() -> None:
    found = compare(with_modules("Linear_0", "Linear_1"), with_modules("Linear_0", "Linear_1"))
    assert {row.region for row in found.rows} == {"nn.Module: Linear_0", "nn.Module: Linear_1"}
    assert found.rungs["path"] == pytest.approx(1)
    moved = compare(with_modules("Linear_0", "Linear_1"), with_modules("Conv_0", "Conv_1"))
    assert moved.rungs["op"] == pytest.approx(1)


def served(mark: str) -> Trace:
    """A program whose steps a serving engine marks so."""
    trace = built([MM, ADDED])
    for event in trace.events:
        if str(event.get("name")).startswith("ProfilerStep#"):
            event["name"] = mark
    return trace.load()


@pytest.mark.parametrize("mark", ["step[DECODE bs=16]", "step[EXTEND bs=8 toks=512]"])
def test_another_batch_or_phase_of_serving_is_said_and_not_compared(mark: str) -> None:
    found = compare(served("step[DECODE bs=8]"), served(mark))
    assert found.verdict.word is Word.UNKNOWN
    assert "the steps are of decode with 8 requests and of " in found.verdict.why
    assert found.verdict.settle == "record both with the same inputs"
    assert compare(served(mark), served(mark)).verdict.word is Word.IDENTICAL
