"""Low-rank adapters that inference computes beside its layers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.kernel_programs import BF16, Op, found, program
from tests.support.execution_traces import Call, Tensor, written
from tests.support.paths import SHARED
from tests.support.trace_builder import content_of, load_bytes
from traceanalyzer import diagnose, load
from traceanalyzer.model.finding import Severity

RULE = "unmerged-adapter"
ROWS, INPUTS, OUTPUTS = 64, 1024, 2048


def linear(inputs: int, outputs: int) -> Op:
    return Op("aten::linear", "nvjet_tst", 200, [[ROWS, inputs], [outputs, inputs], []], [BF16, BF16, ""])


def pointwise(name: str) -> Op:
    return Op(f"aten::{name}", "elementwise_kernel", 100, [[ROWS, OUTPUTS], [ROWS, OUTPUTS]], [BF16, BF16])


def layer(rank: int) -> list[Op]:
    down, up = linear(INPUTS, rank), linear(rank, OUTPUTS)
    return [linear(INPUTS, OUTPUTS), pointwise("dropout"), down, up, pointwise("mul"), pointwise("add")]


def test_adapters_are_counted_with_their_launches() -> None:
    (finding,) = found(program(4 * layer(16)), RULE)
    assert (finding.evidence["adapters"], finding.evidence["launches"]) == (4, 20)
    assert "merge_and_unload()" in finding.advice


def test_adapters_between_which_requests_switch_are_left() -> None:
    content = json.loads(content_of(program(4 * layer(16))))
    op = next(event for event in content["traceEvents"] if event.get("cat") == "cpu_op")
    name, ids = "peft/tuners/tuners_utils.py(2615): set_adapter", {"Python id": 1, "Python parent id": None}
    content["traceEvents"].append({**op, "cat": "python_function", "name": name, "args": ids})
    assert found(load_bytes(json.dumps(content).encode()), RULE) == []


def adapted(layer_number: int, adapter: int) -> list[Call]:
    """One of four layers of 64 inputs and outputs with an adapter of rank 8."""
    base, down, up = (Tensor(1_000 * part + 10 * layer_number) for part in (1, 2, 3))
    weights = replace(base, shape=(64, 64)), replace(down, shape=(8, 64)), replace(up, shape=(64, 8))
    if adapter:
        weights = weights[0], *(replace(weight, storage=weight.storage + adapter) for weight in weights[1:])
    x, low, wide = Tensor(1, (32, 64)), Tensor(2, (32, 8)), Tensor(3, (32, 64))
    return [
        Call("aten::linear", (x, weights[0]), (Tensor(4, (32, 64)),)),
        Call("aten::linear", (x, weights[1]), (low,)),
        Call("aten::linear", (low, weights[2]), (wide,)),
        Call("aten::mul", (wide,), (Tensor(5, (32, 64)),), numbers=(2.0,)),
        Call("aten::add", (Tensor(4, (32, 64)), Tensor(5, (32, 64))), (Tensor(6, (32, 64)),)),
    ]


@pytest.mark.parametrize(("second", "reported"), [(0, 1), (1, 0)], ids=["the same adapter", "another one"])
def test_requests_that_switch_to_the_same_adapter(tmp_path: Path, second: int, reported: int) -> None:
    requests = [call for adapter in (0, second) for number in range(4) for call in adapted(number, adapter)]
    path = written(tmp_path, [requests] * 3)
    content = json.loads(path.read_text())
    op = next(event for event in content["traceEvents"] if event.get("cat") == "cpu_op")
    name, ids = "peft/tuners/tuners_utils.py(2615): set_adapter", {"Python id": 1, "Python parent id": None}
    content["traceEvents"].append({**op, "cat": "python_function", "name": name, "args": ids})
    path.write_text(json.dumps(content))
    findings = diagnose(load(path), select=(RULE,)).findings
    assert [one.evidence["adapters"] for one in findings] == [8] * reported
    assert all("use the same adapter" in one.advice for one in findings)


def scaled_layer(number: int, batch: Tensor) -> list[Call]:
    """A layer whose adapter scales its result by norms of the weights."""
    base, down, up, add = (adapted(number, 0)[at] for at in (0, 1, 2, 4))
    weight, wide = base.reads[1], Tensor(3, (32, 64))
    identity, low, product, total, norms = (Tensor(20 + at, (64, 64)) for at in range(5))
    scales = [Call("aten::mul", (source, norms), (wide,)) for source in (wide, add.reads[0], wide)]
    return [
        replace(base, reads=(batch, weight)),
        Call("aten::eye", (), (identity,)),
        Call("aten::linear", (identity, down.reads[1]), (replace(low, shape=(64, 8)),)),
        Call("aten::linear", (replace(low, shape=(64, 8)), up.reads[1]), (product,)),
        Call("aten::add", (weight, product), (total,)),
        Call("aten::linalg_norm", (total,), (norms,)),
        replace(down, reads=(batch, down.reads[1])),
        up,
        *scales,
        *[add] * 2,
    ]


def test_norms_of_weights_belong_to_their_adapters(tmp_path: Path) -> None:
    """Of 13 ops of a layer all but the first belong to its adapter, and launch a kernel each."""
    batches = [Tensor(60 + step, (32, 64)) for step in range(3)]
    steps = [[call for number in range(4) for call in scaled_layer(number, batch)] for batch in batches]
    (finding,) = diagnose(load(written(tmp_path, steps)), select=(RULE,)).findings
    assert (finding.evidence["adapters"], finding.evidence["launches"]) == (4, 48)


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param(4 * layer(512), id="rank is half of the inputs"),
        pytest.param(3 * layer(16), id="too few"),
        pytest.param(4 * [*layer(16)[:4], pointwise("silu"), pointwise("mul")], id="no addition"),
        pytest.param([linear(INPUTS, OUTPUTS), linear(INPUTS, 16), *4 * layer(16)[3:]], id="no pair"),
    ],
)
def test_other_linear_layers_are_no_adapters(ops: list[Op]) -> None:
    assert found(program(ops), RULE) == []


@pytest.mark.skipif(not SHARED.exists(), reason="no shared traces")
def test_a_served_adapter_is_reported_until_it_is_merged() -> None:
    """Measured without the profiler, the merged model takes 16 % less time."""
    served, merged = (
        diagnose(load(SHARED / f"seventh/tenant_prefill.{variant}.json.gz"), select=(RULE,)).findings
        for variant in ("bad", "fixed")
    )
    (finding,) = served
    assert (finding.severity, finding.evidence["adapters"]) == (Severity.HIGH, 14)
    assert finding.saving is not None
    assert finding.saving.low_share <= 0.16 <= finding.saving.high_share
    assert not merged
