"""Compiled code that costs CPU time in each call: many guards, and a CUDA graph that is not replayed."""

from __future__ import annotations

from argparse import Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def build_guards(args: Namespace, device: Device) -> Plan:
    """100 small layers under one compiled call, which checks guards of each layer, or none of them."""
    import torch

    layers = [torch.nn.Linear(64, 64, device=device.kind) for _ in range(device.pick(100, 4))]
    model = torch.nn.Sequential(*layers).requires_grad_(False)
    x = torch.randn(64, 64, device=device.kind)
    unguarded = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
    options = unguarded if args.variant == "unchecked" and device.is_gpu else None
    compiled = torch.compile(model, backend=device.pick("inductor", "aot_eager"), options=options)
    return Plan(lambda: compiled(x))


def build_not_replayed(args: Namespace, device: Device) -> Plan:
    """mode="reduce-overhead" for a function that changes its input in place, or returns the result instead."""
    import torch

    weights = [torch.randn(512, 512, device=device.kind) for _ in range(device.pick(20, 2))]
    x = torch.randn(512, 512, device=device.kind)
    settings = device.pick({"mode": "reduce-overhead"}, {"backend": "aot_eager"})

    def normalized(x: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            x = torch.tanh(x @ weight)
        return x

    def in_place(x: torch.Tensor) -> torch.Tensor:
        return x.copy_(normalized(x))

    function = torch.compile(in_place if args.variant == "in_place" else normalized, **settings)
    return Plan(lambda: function(x), Window(active=3))


WORKLOADS = (
    Workload(
        name="compile_guards",
        summary="a compiled model that checks the guards of 100 layers in each call (checked) or none",
        build=build_guards,
        variants=("checked", "unchecked"),
        examples=("compile_guards --variant checked --shapes --out traces",),
        switches=("shapes",),
    ),
    Workload(
        name="compile_not_replayed",
        summary="mode='reduce-overhead' without its CUDA graph, as an input is changed in place, or with it (returned)",
        build=build_not_replayed,
        variants=("in_place", "returned"),
        shows={
            "in_place": "3 calls with mode='reduce-overhead' that launch their kernels one by one",
            "returned": "the same with a result in place of a changed input: a CUDA graph is replayed",
        },
        examples=("compile_not_replayed --variant in_place --shapes --stacks --out traces",),
        switches=("shapes", "stacks"),
    ),
)
