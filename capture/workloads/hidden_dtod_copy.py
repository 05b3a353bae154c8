"""addmm with a bias of two axes: the output is seeded by a device-to-device copy before the GEMM."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """Shape of the product."""
    parser.add_argument("--size", type=int, help="rows and columns of the matrices (4096; CPU 128)")
    parser.add_argument("--rows", type=int, help="rows of input and output (default: --size)")


def build(args: Namespace, device: Device) -> Plan:
    """bad: a full bias, copied into the output first; good: one row, added in the GEMM's epilogue."""
    import torch

    size = args.size or device.pick(4096, 128)
    rows = args.rows or size
    dtype = device.pick(torch.bfloat16, torch.float32)
    x = torch.randn(rows, size, device=device.kind, dtype=dtype)
    w = torch.randn(size, size, device=device.kind, dtype=dtype)
    bias = torch.randn(*((rows, size) if args.variant == "bad" else (size,)), device=device.kind, dtype=dtype)

    def step() -> None:
        for _ in range(2):
            torch.addmm(bias, x, w)

    return Plan(step, Window(wait=1, warmup=2, active=4))


WORKLOAD = Workload(
    name="hidden_dtod_copy",
    summary="addmm with a 2-D bias, copied before the GEMM (bad), or a 1-D bias in the epilogue (good)",
    build=build,
    variants=("bad", "good"),
    add_options=add_options,
    shows={
        "bad": "4 steps of two torch.addmm with a full bias: Memcpy DtoD, then the GEMM, in each",
        "good": "the same with a bias of one row, which the GEMM adds itself: no copy",
    },
    examples=(
        "hidden_dtod_copy --variant bad --shapes --out traces",
        "hidden_dtod_copy --variant good --rows 8192 --out traces --name tall",
    ),
)
