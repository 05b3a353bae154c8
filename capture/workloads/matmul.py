"""`torch.add(torch.matmul(x, w), b)` in one annotated function: the smallest useful trace."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from capture.device import Device
from capture.errors import CaptureError
from capture.workload import Plan, Window, Workload

DTYPES = ("bf16", "fp16", "fp32")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def torch_dtype(name: str) -> Any:
    """The torch dtype for "bf16", "fp16" or "fp32"."""
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[name]


def add_options(parser: ArgumentParser) -> None:
    """Shapes, dtype, how it is run and how often."""
    parser.add_argument("--size", type=int, help="rows and columns (4096 on a GPU, 256 on a CPU)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="default: bf16")
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="add a batch axis of N (0: none)")
    parser.add_argument("--op", choices=("matmul", "addmm"), default="matmul", help="default: matmul")
    parser.add_argument("--bias-dims", type=int, choices=(1, 2), default=2, help="bias of 1 or 2 axes (2)")
    parser.add_argument("--cold", action="store_true", help="no step before the profiler starts")
    parser.add_argument("--compile", action="store_true", help="torch.compile instead of eager")
    parser.add_argument("--mode", choices=MODES, default="default", help="for --compile (default)")
    parser.add_argument("--iterations", type=int, default=1, metavar="N", help="calls per step (1)")


def build(args: Namespace, device: Device) -> Plan:
    """Inputs are random and stay on the device; only the function is in the window."""
    import torch
    from torch.profiler import record_function

    size = args.size or device.pick(4096, 256)
    if args.op == "addmm" and args.batch:
        raise CaptureError("--op addmm takes no --batch: addmm multiplies matrices only")
    if size < 1 or args.batch < 0 or args.iterations < 1:
        raise CaptureError("--size and --iterations must be at least 1, --batch at least 0")
    options = {"device": device.kind, "dtype": torch_dtype(args.dtype)}
    lead = (args.batch,) if args.batch else ()
    x = torch.randn(*lead, size, size, **options)
    w = torch.randn(*lead, size, size, **options)
    b = torch.randn(*((*lead, size, size) if args.bias_dims == 2 else (size,)), **options)

    def matmul_add(x: Any, w: Any, b: Any) -> Any:
        if args.op == "addmm":
            return torch.addmm(b, x, w)
        return torch.add(torch.matmul(x, w), b)

    function = torch.compile(matmul_add, mode=args.mode) if args.compile else matmul_add

    def step() -> None:
        for _ in range(args.iterations):
            with record_function("matmul_add"):
                function(x, w, b)

    return Plan(step, Window(wait=1, warmup=1, active=3), warm_steps=0 if args.cold else 20)


WORKLOAD = Workload(
    name="matmul",
    summary="add(matmul(x, w), b) in one annotated function: cold or warm, eager or compiled",
    build=build,
    add_options=add_options,
    examples=(
        "matmul --size 4096 --out traces",
        "matmul --size 2048 --cold --wait 0 --warmup 0 --active 10 --out traces --name cold",
        "matmul --compile --mode reduce-overhead --out traces --name compiled",
        "matmul --op addmm --bias-dims 1 --out traces --name epilogue",
    ),
)
