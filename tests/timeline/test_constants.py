"""Names that are bound twice at module level: the second hides the first from all that reads it."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from traceanalyzer.timeline.kernel_families import computes, is_product

MODULES = sorted((REPOSITORY / "traceanalyzer").rglob("*.py"))


def test_constants_are_bound_once() -> None:
    twice = {path.relative_to(REPOSITORY): bound_twice(path) for path in MODULES}
    assert len(twice) > 400
    assert {path: names for path, names in twice.items() if names} == {}


def bound_twice(path: Path) -> list[str]:
    """Names of a module that are bound more than once."""
    bound: Counter[str] = Counter()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            bound.update(one.id for one in names if isinstance(one, ast.Name))
    return [name for name, count in bound.items() if count > 1]


@pytest.mark.parametrize(
    "name",
    [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>(params)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8",
        "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT",
        "cutlass_tensorop_f16_s16816fprop_optimized_f16_256x128",
    ],
)
def test_products_convolutions_and_attention_are_known(name: str) -> None:
    assert is_product(name)
    assert computes(name)


@pytest.mark.parametrize("name", ["at::native::vectorized_elementwise_kernel<4>", "Memcpy DtoD"])
def test_other_kernels_are_none(name: str) -> None:
    assert not is_product(name)
