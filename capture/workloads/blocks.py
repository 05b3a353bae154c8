"""Blocks of a transformer, each written in the ways whose traces are worth comparing: linear layer, MLP, attention."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

from capture.device import Device
from capture.workload import Plan, Window, Workload


def compiled(function: Callable[..., Any], device: Device) -> Callable[..., Any]:
    """The function under torch.compile; a CPU generates no code for it."""
    import torch

    faster: Callable[..., Any] = torch.compile(function, backend=device.pick("inductor", "aot_eager"))
    return faster


def plan(forward: Callable[[], object], name: str) -> Plan:
    """Three steps of an annotated forward pass that records no gradients."""
    import torch
    from torch.profiler import record_function

    def step() -> None:
        with torch.no_grad(), record_function(name):
            forward()

    return Plan(step, Window(active=3))


def build_linear(args: Namespace, device: Device) -> Plan:
    """One small nn.Linear with bias."""
    import torch

    layer = torch.nn.Linear(32, 64, device=device.kind, dtype=torch.bfloat16)
    x = torch.randn(device.pick(1024, 8), 32, device=device.kind, dtype=torch.bfloat16)
    function = compiled(layer, device) if args.variant == "compiled" else layer
    return plan(lambda: function(x), "linear_forward")


def build_mlp(args: Namespace, device: Device) -> Plan:
    """GeGLU: two projections, GELU of one of them times the other, and a projection back."""
    import torch
    from torch.nn.functional import gelu

    rows, width, hidden = device.pick((8192, 768, 3072), (8, 16, 32))
    options: dict[str, Any] = {"bias": False, "device": device.kind, "dtype": torch.bfloat16}
    gate, up = (torch.nn.Linear(width, hidden, **options) for _ in range(2))
    down = torch.nn.Linear(hidden, width, **options)
    x = torch.randn(rows, width, device=device.kind, dtype=torch.bfloat16)

    def two_ops(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return gelu(left, approximate="tanh") * right

    gated = fused_geglu() if args.variant == "kernel" and device.is_gpu else two_ops

    def mlp(x: torch.Tensor) -> torch.Tensor:
        return down(gated(gate(x), up(x)))

    function = compiled(mlp, device) if args.variant == "compiled" else mlp
    return plan(lambda: function(x), "mlp_forward")


def fused_geglu() -> Callable[..., Any]:
    """One kernel for both ops; its module needs Triton, which a CPU lacks."""
    from capture.geglu_kernel import geglu

    return geglu


def build_attention(args: Namespace, device: Device) -> Plan:
    """Causal attention by hand, or by one backend of scaled_dot_product_attention."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    heads, tokens, width = device.pick((8, 4096, 64), (2, 8, 4))
    options: dict[str, Any] = {"device": device.kind, "dtype": torch.bfloat16}
    q, k, v = (torch.randn(1, heads, tokens, width, **options) for _ in range(3))
    masked = torch.ones(tokens, tokens, dtype=torch.bool, device=device.kind).triu(1)
    backends = {
        "math": SDPBackend.MATH,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "flash": SDPBackend.FLASH_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
    }

    def by_hand() -> torch.Tensor:
        scores = (q @ k.transpose(-2, -1)) * width**-0.5
        if args.variant == "naive":
            scores = scores.masked_fill(masked, float("-inf"))
        else:
            scores.masked_fill_(masked, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v

    def by_backend() -> torch.Tensor:
        with sdpa_kernel(device.pick(backends[args.variant], SDPBackend.MATH)):
            return scaled_dot_product_attention(q, k, v, is_causal=True)

    return plan(by_backend if args.variant in backends else by_hand, "attention_forward")


WORKLOADS = (
    Workload(
        name="linear",
        summary="one nn.Linear with bias, eager or compiled",
        build=build_linear,
        variants=("eager", "compiled"),
        shows={
            "eager": "3 forward passes of one nn.Linear with bias",
            "compiled": "the same under torch.compile, which has nothing to fuse",
        },
        examples=("linear --variant compiled --shapes --out traces",),
        switches=("shapes",),
    ),
    Workload(
        name="mlp",
        summary="a GeGLU MLP: eager, compiled, or with a kernel written by hand",
        build=build_mlp,
        variants=("eager", "compiled", "kernel"),
        shows={
            "eager": "3 forward passes of a GeGLU MLP: three GEMMs, gelu and mul",
            "compiled": "the same under torch.compile: gelu and mul are one kernel",
            "kernel": "the same with a Triton kernel for gelu and mul, and no compiler",
        },
        examples=("mlp --variant kernel --shapes --out traces",),
        switches=("shapes",),
    ),
    Workload(
        name="attention",
        summary="causal attention by hand (naive, in place) or by a backend of scaled_dot_product_attention",
        build=build_attention,
        variants=("naive", "in_place", "math", "efficient", "flash", "cudnn"),
        shows={
            "naive": "3 forward passes of causal attention by hand: masked_fill copies the scores",
            "in_place": "the same with masked_fill_",
            "math": "the same by scaled_dot_product_attention, math backend",
            "efficient": "the same, memory-efficient backend",
            "flash": "the same, flash backend",
            "cudnn": "the same, cuDNN backend",
        },
        examples=("attention --variant math --shapes --out traces",),
        switches=("shapes",),
    ),
)
