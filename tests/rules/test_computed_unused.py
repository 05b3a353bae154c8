"""Ops whose results no op reads, in traces of a few ops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.execution_traces import Call, Tensor, written
from traceanalyzer import Finding, diagnose, load

X, W, P = (Tensor(storage) for storage in (1, 2, 3))
GPU_NS = 200_000
OF_INPUT, OF_WEIGHT = "sm90_xmma_dgrad_implicit_gemm", "sm90_xmma_wgrad_implicit_gemm"


def findings(folder: Path, *calls: Call) -> list[Finding]:
    steps = [list(calls)] * 4
    return list(diagnose(load(written(folder, steps)), select=["computed-unused"]).findings)


def gradients(of: Tensor, result: Tensor, of_weight: Tensor) -> Call:
    """Backward of a convolution, half of its time for each gradient."""
    results = result, of_weight
    kernels = OF_INPUT, OF_WEIGHT
    return Call("aten::convolution_backward", (of, X, W), results, backward=True, kernels=kernels, gpu=GPU_NS)


def test_gradients_of_frozen_weights_are_part_of_an_op(tmp_path: Path) -> None:
    """Three frozen layers hand their gradient on to a trained parameter: half of their 600 us a step is in vain."""
    layers = [gradients(Tensor(10 + at), Tensor(11 + at), Tensor(20 + at)) for at in range(3)]
    update = Call("aten::add_", (P, Tensor(13)), (P,), writes=(0,))
    (finding,) = findings(tmp_path, *layers, update)
    assert (finding.cause, finding.evidence["ops_a_step"]) == ("unread-gradients", 3)
    assert finding.evidence["gpu_ns"] == pytest.approx(300_000, rel=0.01)
    assert "3 ops a step (3 of them: some of the results)" in finding.message
    updates = [Call("aten::add_", (P, Tensor(20 + at)), (P,), writes=(0,)) for at in range(3)]
    assert findings(tmp_path, *layers, update, *updates) == []
