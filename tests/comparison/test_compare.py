"""Comparisons of built programs, of fixtures, and of recordings whose difference is known."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.comparison.programs import ADDED, MM, TANH, built, sums
from tests.support.cached_reports import loaded
from tests.support.fixtures import FIXTURES
from tests.support.paths import SHARED
from tests.support.trace_builder import TraceBuilder
from tests.support.trace_selection import some_of
from traceanalyzer import BadOption, Comparison, Trace, compare, load
from traceanalyzer.comparison.result import Counted, Word
from traceanalyzer.render.data.comparison import COLUMNS, ledger_rows, ledger_text
from traceanalyzer.render.text.comparison import render_comparison

PAIRS = [folder for folder in sorted(FIXTURES.iterdir()) if (folder / "good.json.gz").exists()]
SHOWN = [folder for folder in PAIRS if folder.name in ("implicit-sync", "no-tensor-cores", "unfused-optimizer")]


def counter(found: Comparison, name: str) -> Counted:
    return next(one for one in found.axes.exact if one.counter == name)


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


def test_read_back_names_its_op_and_slows_the_step() -> None:
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
    found = compare(built([MM, ADDED], jitter=1).load(), built([replace(MM, dur=520), ADDED], jitter=1).load())
    row = next(row for row in found.rows if row.op == "aten::mm")
    assert row.p is not None
    assert row.p < 0.01
    assert row.word is Word.SAME
    assert found.verdict.word is Word.SAME


def test_another_kernel_of_the_same_op_matches_by_path() -> None:
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


def test_more_executions_of_one_op_stay_one_row() -> None:
    found = compare(built([MM, ADDED]).load(), built([MM, ADDED, ADDED, ADDED]).load())
    rows = [row for row in found.rows if row.op == "aten::add"]
    assert len(rows) == 1
    assert rows[0].base is not None
    assert rows[0].new is not None
    assert (rows[0].word, rows[0].base.count, rows[0].new.count) == (Word.MORE, 1, 3)


def test_pointwise_ops_and_compiled_kernel_match_by_family() -> None:
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


@pytest.mark.parametrize("folder", some_of(PAIRS), ids=lambda folder: folder.name)
def test_every_recorded_pair_adds_up(folder: Path) -> None:
    assert sums(compare(loaded(folder / "bad.json.gz"), loaded(folder / "good.json.gz")))


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
    with pytest.raises(BadOption, match="timed on one side only"):
        compare(trace, other, base_ms=2.0)
    for wrong_ms in (-2.0, 0.0, float("inf"), float("nan")):
        with pytest.raises(BadOption, match="not a positive time"):
            compare(trace, other, base_ms=wrong_ms, new_ms=1.0)


def test_fixed_fault_has_a_ledger_row_predicted_and_measured() -> None:
    folder = FIXTURES / "no-tensor-cores"
    found = compare(folder / "bad.json.gz", folder / "good.json.gz", base_ms=10.0, new_ms=3.0)
    (gone,) = [fault for fault in found.faults if fault.status == "gone"]
    assert gone.said_share is not None
    assert gone.got_share == pytest.approx(0.7)
    (row,) = ledger_rows(found, 0.02)
    assert tuple(row) == COLUMNS
    assert (row["rule"], row["true"], row["spread"], row["fitted"]) == ("no-tensor-cores", "0.7000", "0.0200", "no")
    text = ledger_text([row], ledger_text([row], ""))
    assert text.count("\n") == 3
    assert ledger_text([row], text.removesuffix("\n")) == ledger_text([row], text)
    predicted = compare(folder / "bad.json.gz", folder / "good.json.gz")
    assert {one["fitted"] for one in ledger_rows(predicted, None)} == {"yes"}


Shared = Callable[[str], Path]
SIDED = (Word.SLOWER, Word.FASTER)


def of(shared: Shared, base: str, new: str) -> Comparison:
    return compare(shared(f"noise/{base}"), shared(f"noise/{new}"))


@pytest.mark.parametrize(
    ("base", "new"), some_of([("gemm.a1", "gemm.a2"), ("gemm.a3", "gemm.a1"), ("resnet.a2", "resnet.a4")])
)
def test_the_same_program_again_is_no_difference(shared: Shared, base: str, new: str) -> None:
    found = of(shared, base, new)
    assert found.axes.step is not None
    assert found.axes.device is not None
    assert found.axes.step.word not in SIDED
    assert found.axes.device.word not in SIDED
    assert {one.word for one in found.axes.exact} == {Word.SAME}
    assert sum(row.word in SIDED for row in found.rows) <= len(found.rows) / 20


def test_a_clone_is_one_copy_more(shared: Shared) -> None:
    found = of(shared, "gemm.a2", "gemm.clone")
    (copies,) = [one for one in found.axes.exact if one.counter == "d2d copies"]
    assert (copies.base, copies.new, copies.where) == (0, 1, ("aten::clone",))


def test_an_item_is_one_synchronisation_more(shared: Shared) -> None:
    found = of(shared, "resnet.a3", "resnet.item")
    (waits,) = [one for one in found.axes.exact if one.counter == "synchronisations"]
    assert (waits.base, waits.new, waits.where) == (0, 1, ("aten::item",))


def test_float32_stage_is_slower_on_device_and_in_step(shared: Shared) -> None:
    found = of(shared, "resnet.a1", "resnet.fp32")
    assert found.axes.device is not None
    assert found.axes.device.word is Word.SLOWER
    assert found.verdict.word is Word.SLOWER
    assert found.rows[0].note.startswith("bfloat16 became float32 of 192x256x10x10, 256x256x3x3; kernel ")
    assert any("became float32 of 192x256x10x10" in line for line in render_comparison(found).splitlines())
    assert "287 µs -> 682 µs, bfloat16 became float32 of 192x256x10x10" in " ".join(render_comparison(found).split())


def test_a_wider_input_is_other_shapes(shared: Shared) -> None:
    found = of(shared, "gemm.a4", "gemm.wider")
    assert found.verdict.word is Word.UNKNOWN
    assert "other shapes" in found.verdict.why
    assert "4224" in found.verdict.why


def test_the_same_gemm_matches_across_a_compiler(shared: Shared) -> None:
    found = compare(shared("seeds/4096_bf16_warm_eager"), shared("seeds/4096_bf16_warm_compile"))
    product = next(row for row in found.rows if row.op == "aten::mm" and row.kind == "compute")
    assert product.rung == "kernel"
    assert product.base is not None
    assert product.new is not None
    assert all("nvjet" in side.kernels[0] for side in (product.base, product.new))
    (copies,) = [one for one in found.axes.exact if one.counter == "d2d copies"]
    assert (copies.base, copies.new) == (0, 1)


def test_what_overlap_gives_compute_takes() -> None:
    sides = SHARED / "jobs/lightllm_base", SHARED / "jobs/lightllm_overlap"
    if not all(side.is_dir() for side in sides):
        pytest.skip("no shared traces of this job")
    found = compare(*(side / "rank0.json.gz" for side in sides))
    assert found.verdict.word not in SIDED
    assert "Nothing gained, because communication gives" in found.verdict.why
    assert found.waterfall is not None
    base, new, _ = found.waterfall.groups["communication"]
    assert 50e6 < base < 60e6
    assert 15e6 < new < 28e6
    base, new, _ = found.waterfall.groups["compute"]
    assert 40e6 < base < 50e6
    assert 70e6 < new < 82e6


@pytest.mark.parametrize(
    ("program", "named"),
    some_of(
        [
            ("pairs4/checkpointing", r"^recomputation: checkpoint is gone \(predicted \d+ %, got \d+ %\)$"),
            ("pairs4/metric_checks", r"^torchmetrics/\S+: compute and \d more are gone"),
            ("pairs4/unbatched_generate", r"^the same work runs 4 times as often in BASE"),
            ("pairs4/dense_embedding", r"^dense-gradient: embedding is gone \(predicted to add \d+ %\)$"),
            ("third/decode_sync", r"^aten::is_nonzero: .*cudaStreamSynchronize 32 -> 2 a step"),
        ]
    ),
)
def test_what_differs_is_named_first(shared: Shared, program: str, named: str) -> None:
    found = compare(shared(f"{program}.bad"), shared(f"{program}.fixed"))
    assert re.search(named, found.verdict.because[0])
    assert found.waterfall is not None
    assert found.waterfall.base_ns + sum(part.delta_ns for part in found.waterfall.parts) == found.waterfall.new_ns


@pytest.mark.slow
def test_idle_time_of_a_job_that_explains_it_comes_first() -> None:
    sides = SHARED / "jobs/torchrec_a2a", SHARED / "jobs/torchrec_sleep"
    if not all(side.is_dir() for side in sides):
        pytest.skip("no shared traces of this job")
    found = compare(*sides)
    assert found.verdict.word is Word.SLOWER
    assert re.match(r"host-code: \+9[56]\d ms of the step, most of it idle time", found.verdict.because[0])
    assert "rank 2 is late in both: others wait 59.9 ms and 1.01 s a step for it" in found.notes


def test_steps_of_two_machines_differ_if_intervals_do(shared: Shared) -> None:
    found = compare(shared("public/hta_v100_ns"), shared("public/hta_a100_nccl"))  # ResNet-50 both
    assert found.rungs["path"] > 0.8
    assert found.axes.step is not None
    assert found.axes.step.difference > 0.5
    assert found.verdict.word is Word.UNKNOWN  # 86 to 105 ms and 99 to 200 ms
    assert found.verdict.settle


@pytest.mark.parametrize(
    ("folder", "job", "told"),
    [
        ("ranks", "imbalance", "rank 1 is late no more"),
        pytest.param("ranks2", "loader", "rank 0 is late no more", marks=pytest.mark.slow),
        ("ranks2", "healthy", ""),
    ],
)
def test_the_late_rank_is_the_one_of_the_report(shared: Shared, folder: str, job: str, told: str) -> None:
    sides = [{rank: load(shared(f"{folder}/{job}.{side}.rank{rank}")) for rank in (0, 1)} for side in ("bad", "fixed")]
    late = [note for note in compare(*sides).notes if "late" in note]
    assert [note.partition(":")[0] for note in late] == ([told] if told else [])
