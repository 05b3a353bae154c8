"""Kernels of replayed CUDA graphs: the layers of a model as repeated blocks of the tree."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import REPORTS
from traceanalyzer import load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.regions.regions import Regions
from traceanalyzer.report.step_parts import step_parts

Shared = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "layers", "gpu_ms"),
    [
        ("jobs/lightllm_base/rank0", 58, 101),  # DeepSeek-V3: 58 of its 61 layers have experts
        ("jobs/lightllm_overlap/rank3", 57, 95),  # two micro-batches, of which the layers overlap
        ("public/tracelens_mi300_sglang_decode", 36, 9),
        ("public/tracelens_mi300_vllm_decode", 24, 10),
    ],
)
def test_the_largest_block_has_the_layers(shared: Shared, name: str, layers: int, gpu_ms: int) -> None:
    table = Analysis(load(shared(name))).index(Regions).frame()
    block = table[table.kind == "block"].nlargest(1, "gpu_ns").iloc[0]
    assert (block.calls, round(block.gpu_ns / 1e6)) == (layers, gpu_ms)
    assert table[table.node == block.parent].name.item() in ("cudaGraphLaunch", "hipGraphLaunch")


def test_each_layer_has_the_kernels_of_one(shared: Shared) -> None:
    table = Analysis(load(shared("public/tracelens_mi300_sglang_decode"))).index(Regions).frame()
    kernels = table[table.kind == "kernel"].groupby("name").calls.sum()
    assert kernels["rotary_embedding_kernel"] == 36
    assert kernels["paged_attention_ll4mi_QKV_mfma16_kernel"] == 36
    assert kernels["add_rmsnorm_quant_kernel"] == 4 * 36 + 1  # the last is after all layers


def test_replays_keep_the_work_of_the_step(shared: Shared) -> None:
    table = Analysis(load(shared("public/tracelens_mi300_vllm_decode"))).index(Regions).frame()
    launch = table[table.name == "hipGraphLaunch"].iloc[0]
    below = table[table.parent == launch.node]
    assert below.gpu_ns.sum() == pytest.approx(launch.gpu_ns, rel=1e-6)
    assert below.cpu_ns.sum() == 0


def test_the_step_goes_to_layers(shared: Shared) -> None:
    of, parts = step_parts(Analysis(load(shared("jobs/lightllm_base/rank0"))))
    assert of == "GPU"
    assert {name: round(share, 2) for name, share in parts.items()} == {"58 x (combine, fp8_gemm_kernel, ...)": 0.95}


@pytest.mark.parametrize(("name", "between_us"), [("serving_gap_graph", 1_604), ("serving_gap_400us", 393)])
def test_time_between_iterations_of_a_server_is_a_region(name: str, between_us: int) -> None:
    if not (path := REPORTS / f"{name}.json.gz").exists():
        pytest.skip("the traces of reports are absent")
    table = Analysis(load(path)).index(Regions).frame().set_index("name")
    assert round(table.predicted_ns["between iterations"] / 1e3) == between_us
