"""What a step of each workload computes: its ops and how many tensors each list of them has, on a CPU.

A pair shows its fault only if its variants differ where they should, and nowhere else. The ops are kept in a file,
which UPDATE_SNAPSHOTS=1 and -n 0 write anew.
"""

import json
import os
from argparse import Namespace
from collections import Counter
from typing import Any

import pytest

from capture.cli import build_parser
from capture.device import Device
from capture.workload import Plan, discover, no_options
from tests.support.snapshots import FOLDER
from tests.support.xdist_groups import with_torch

pytestmark = with_torch

TORCH = "2.13."  # as pyproject.toml has it
KEPT = FOLDER / "workload_ops.json"
WORKLOADS = discover()
# Generated code, and workers that are forks.
ELSEWHERE = {"compile", "linear compiled", "mlp compiled", "dataloader_stall good"}
TINY = ["--size", "16"]
MODEL = ["--batch", "2", "--width", "16"]
WITH_OPTIONS = [
    ["activity_buffer_request", "--size", "8", "--matmuls", "2", "--fill", "3"],
    *[["healthy", "--variant", kind, "--width", "16", "--rows", "8"] for kind in ("gemm", "train")],
    ["healthy", "--variant", "gemm", "--width", "16", "--rows", "8", "--layers", "3"],
    *[["hidden_dtod_copy", "--variant", kind, *TINY, "--rows", "8"] for kind in ("bad", "good")],
    ["kernel_variance", "--variant", "good", *TINY, "--matmuls", "2"],
    *[
        ["long_device_sync", "--variant", kind, "--width", "8", "--rows", "4", "--layers", "2"]
        for kind in ("bad", "good")
    ],
    ["matmul", *TINY],
    ["matmul", *TINY, "--op", "addmm", "--bias-dims", "1", "--dtype", "fp32"],
    ["matmul", *TINY, "--batch", "2", "--iterations", "3"],
    ["scheduler_gap", "--variant", "good", "--size", "8", "--entries", "4", "--matmuls", "3"],
    ["training", *MODEL],
    ["training", *MODEL, "--no-fused"],
    ["training", *MODEL, "--model", "transformer", "--tokens", "4", "--layers", "1"],
    ["training", *MODEL, "--model", "transformer", "--tokens", "4", "--layers", "2", "--no-fused"],
]
PAIRS = [
    [name, "--variant", variant] if variant else [name]
    for name, workload in WORKLOADS.items()
    for variant in workload.variants or (None,)
    if workload.add_options is no_options and not {name, f"{name} {variant}"} & ELSEWHERE
]


def ops_of_a_step(plan: Plan) -> dict[str, int]:
    """How often the second step calls each op; an op on a list of tensors is named with their number."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: Counter[str] = Counter()

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
            name, first = str(func).removeprefix("aten."), args[0] if args else None
            if isinstance(first, list | tuple) and any(isinstance(one, torch.Tensor) for one in first):
                name += f" of {len(first)}"
            calls[name] += 1
            return func(*args, **(kwargs or {}))

    plan.step()
    with Counted():
        plan.step()
    return dict(sorted(calls.items()))


@pytest.mark.parametrize("command", [*PAIRS, *WITH_OPTIONS], ids=" ".join)
def test_a_step_calls_the_ops_that_it_always_called(command: list[str]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.__version__.startswith(TORCH):
        pytest.skip(f"the ops are those of torch {TORCH}, not of {torch.__version__}")
    args: Namespace = build_parser(WORKLOADS).parse_args([*command, "--device", "cpu", "--out", "x"])
    found = ops_of_a_step(WORKLOADS[command[0]].build(args, Device("cpu")))
    kept: dict[str, dict[str, int]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if os.environ.get("UPDATE_SNAPSHOTS"):
        kept[" ".join(command)] = found
        lines = [f"{json.dumps(name)}: {json.dumps(ops)}" for name, ops in sorted(kept.items())]
        KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert found == kept[" ".join(command)]


def test_nothing_is_kept_of_what_there_is_no_more() -> None:
    assert sorted(json.loads(KEPT.read_text())) == sorted(" ".join(one) for one in [*PAIRS, *WITH_OPTIONS])
