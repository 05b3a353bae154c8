"""Recordings whose difference is known: repeats of one program, known changes of it, and other people's jobs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import SHARED
from tests.support.trace_selection import some_of
from traceanalyzer import Comparison, compare, load
from traceanalyzer.comparison.result import Word
from traceanalyzer.render.text.comparison import render_comparison

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
    assert "287 µs -> 682 µs, bfloat16 became float32 of 192x256x10x10" in " ".join(
        render_comparison(found).split()
    )


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
            ("pairs4/checkpointing", r"^recomputation: checkpoint is gone \(said \d+ %, got \d+ %\)$"),
            ("pairs4/metric_checks", r"^torchmetrics/\S+: compute and \d more are gone"),
            ("pairs4/unbatched_generate", r"^the same work runs 4 times as often in BASE"),
            ("pairs4/dense_embedding", r"^dense-gradient: embedding is gone \(said to add \d+ %\)$"),
            ("third/decode_sync", r"^aten::is_nonzero: .*cudaStreamSynchronize 32 -> 2 a step"),
        ]
    ),
)
def test_what_differs_is_named_first(shared: Shared, program: str, named: str) -> None:
    found = compare(shared(f"{program}.bad"), shared(f"{program}.fixed"))
    assert re.search(named, found.verdict.because[0])
    assert found.waterfall is not None
    assert (
        found.waterfall.base_ns + sum(part.delta_ns for part in found.waterfall.parts)
        == found.waterfall.new_ns
    )


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
    sides = [
        {rank: load(shared(f"{folder}/{job}.{side}.rank{rank}")) for rank in (0, 1)}
        for side in ("bad", "fixed")
    ]
    late = [note for note in compare(*sides).notes if "late" in note]
    assert [note.partition(":")[0] for note in late] == ([told] if told else [])
