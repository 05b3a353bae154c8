"""Data that is copied, converted or laid out anew."""

from __future__ import annotations

from collections.abc import Callable

from capture.device import Device
from capture.workload import pair


def exposed_copy(device: Device, bad: bool) -> Callable[[], object]:
    """A batch is uploaded before its matmuls: from pageable memory, or pinned, on a stream of its own, one ahead."""
    import torch

    size = device.pick(4096, 64)
    w = torch.randn(size, size, device=device.kind, dtype=torch.bfloat16)
    host = torch.randn(size, size, dtype=torch.bfloat16)
    if bad or not device.is_gpu:

        def step() -> None:
            x = host.to(device.kind)
            for _ in range(8):
                torch.mm(x, w)

        return step
    pinned, side = host.pin_memory(), torch.cuda.Stream()
    ready = [pinned.to("cuda")]

    def ahead() -> None:
        with torch.cuda.stream(side):
            following = pinned.to("cuda", non_blocking=True)
        x = ready.pop()
        for _ in range(8):
            torch.mm(x, w)
        torch.cuda.current_stream().wait_stream(side)
        ready.append(following)

    return ahead


def strided_copy(device: Device, bad: bool) -> Callable[[], object]:
    """A cache of keys grows: by cat, which moves all of it each time, or into a buffer that is there."""
    import torch

    heads, width, tokens = device.pick((64, 128, 8192), (2, 4, 16))
    cache = torch.randn(heads, tokens, width, device=device.kind)
    buffer = torch.randn(heads, tokens + 64, width, device=device.kind)
    new = torch.randn(heads, 1, width, device=device.kind)
    query = torch.randn(heads, 1, width, device=device.kind)

    def step() -> None:
        keys = cache
        for number in range(8):
            if bad:
                keys = torch.cat([keys, new], dim=1)
            else:
                buffer[:, tokens + number : tokens + number + 1].copy_(new)
                keys = buffer[:, : tokens + number + 1]
            torch.bmm(query, keys.transpose(1, 2))

    return step


def layout_conversion(device: Device, bad: bool) -> Callable[[], object]:
    """Convolutions in half precision: NCHW, which cuDNN converts around each, or channels_last."""
    import torch
    from torch import nn

    channels, side, images = device.pick((256, 56, 64), (4, 8, 2))
    layers = [nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(4)]
    model = nn.Sequential(*layers).to(device.kind, device.pick(torch.float16, torch.float32))
    x = torch.randn(images, channels, side, side, device=device.kind, dtype=next(model.parameters()).dtype)
    if not bad:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    def step() -> None:
        with torch.no_grad():
            model(x)

    return step


def dtype_casts(device: Device, bad: bool) -> Callable[[], object]:
    """Linear layers in bf16: weights kept in float32 and cast in every step, or kept in bf16."""
    import torch

    size, rows = device.pick((8192, 512), (32, 8))
    kept = torch.float32 if bad else torch.bfloat16
    weights = [torch.randn(size, size, device=device.kind, dtype=kept) for _ in range(4)]
    x = torch.randn(rows, size, device=device.kind, dtype=torch.bfloat16)

    def step() -> None:
        y = x
        for w in weights:
            y = torch.mm(y, w.to(torch.bfloat16))

    return step


def data_movement(device: Device, bad: bool) -> Callable[[], object]:
    """Heat spreads on a torus: neighbours by torch.roll, which copies the grid, or by views of one with a border."""
    import torch

    size = device.pick(8192, 16)
    cells = torch.rand(size + 2, size + 2, device=device.kind)
    grid = cells[1:-1, 1:-1].contiguous() if bad else cells[1:-1, 1:-1]

    def neighbours() -> list[torch.Tensor]:
        if bad:
            return [grid.roll(shift, axis) for axis in (0, 1) for shift in (1, -1)]
        for border, inside in ((0, -2), (-1, 1)):
            cells[border].copy_(cells[inside])
            cells[:, border].copy_(cells[:, inside])
        return [cells[:-2, 1:-1], cells[2:, 1:-1], cells[1:-1, :-2], cells[1:-1, 2:]]

    def step() -> None:
        for _ in range(4):
            above, below, left, right = neighbours()
            around = above + below + left + right
            grid.mul_(0.6).add_(around, alpha=0.1)

    return step


WORKLOADS = (
    pair(
        "exposed_copy",
        "batches uploaded from pageable memory (bad) or pinned and one ahead on a stream of their own (good)",
        exposed_copy,
        bad="5 steps that upload 32 MiB from pageable memory before their matmuls",
        good="the same upload from pinned memory, on a side stream, one step ahead",
        switches=("shapes", "stacks"),
        active=5,
    ),
    pair(
        "strided_copy",
        "a cache that grows by torch.cat (bad) or in a buffer made once (good)",
        strided_copy,
        bad="4 steps that append to a 256 MiB cache 8 times by torch.cat",
        good="the same appended in place",
    ),
    pair(
        "layout_conversion",
        "float16 convolutions in NCHW (bad) or channels_last (good)",
        layout_conversion,
        bad="4 steps of 4 float16 convolutions in NCHW, with conversions around each",
        good="the same in channels_last: no conversions",
    ),
    pair(
        "dtype_casts",
        "float32 weights cast to bf16 in every step (bad) or kept in bf16 (good)",
        dtype_casts,
        bad="4 steps of 4 matmuls whose weights are cast from float32 each time",
        good="the same with weights in bf16",
    ),
    pair(
        "data_movement",
        "neighbours in a grid copied by torch.roll (bad) or seen through views of one with a border (good)",
        data_movement,
        bad="4 steps of 4 updates of a 256 MiB grid, for each of which torch.roll copies it 4 times",
        good="the same through views of a grid with a border",
    ),
)
