"""Kernels that take longer than the arithmetic needs."""

from __future__ import annotations

from collections.abc import Callable

from capture.device import Device
from capture.workload import pair


def no_tensor_cores(device: Device, bad: bool) -> Callable[[], object]:
    """float32 matmuls with TF32 off or on."""
    import torch

    size = device.pick(4096, 64)
    x = torch.randn(size, size, device=device.kind)

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = not bad
        for _ in range(4):
            torch.mm(x, x)

    return step


def float64_math(device: Device, bad: bool) -> Callable[[], object]:
    """A numpy array, float64 unless said otherwise, scales an input and everything after it."""
    import numpy as np
    import torch

    size = device.pick(4096, 64)
    scale = torch.from_numpy(np.linspace(0.5, 1.5, size)).to(device.kind)
    x = torch.randn(size, size, device=device.kind)
    w = torch.randn(size, size, device=device.kind)
    scale = scale if bad else scale.float()

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        y = x * scale
        for _ in range(3):
            y = torch.tanh(torch.mm(y, w.to(y.dtype)))

    return step


def misaligned_gemm(device: Device, bad: bool) -> Callable[[], object]:
    """A language model's head over 50,257 or 50,304 words."""
    import torch

    rows, width = device.pick((8192, 1024), (8, 16))
    words = device.pick(50_257 if bad else 50_304, 17 if bad else 24)
    x = torch.randn(rows, width, device=device.kind, dtype=torch.bfloat16)
    head = torch.randn(words, width, device=device.kind, dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(3):
            torch.nn.functional.linear(x, head)

    return step


def fft_length(device: Device, bad: bool) -> Callable[[], object]:
    """Long convolutions by FFT of exactly as many numbers as they need, a prime, or of one more."""
    import torch

    signals, taps = device.pick((2048, 4096), (4, 32))
    length = 2 * taps - 1 if bad else 2 * taps
    x = torch.randn(signals, taps, device=device.kind)
    kernel = torch.randn(taps, device=device.kind)

    def step() -> None:
        for _ in range(3):
            spectrum = torch.fft.rfft(x, n=length) * torch.fft.rfft(kernel, n=length)
            torch.fft.irfft(spectrum, n=length)[:, :taps].relu()

    return step


def one_hot(device: Device, bad: bool) -> Callable[[], object]:
    """How much of each class is predicted where it is: by a mask of all classes, or by the class itself."""
    import torch
    from torch.nn import functional

    images, classes, size = device.pick((4, 96, 256), (2, 5, 8))
    logits = torch.randn(images, classes, size, size, device=device.kind, requires_grad=True)
    target = torch.randint(0, classes, (images, size, size), device=device.kind)

    def step() -> None:
        likely = torch.softmax(logits, dim=1)
        if bad:
            mask = functional.one_hot(target, classes).permute(0, 3, 1, 2).float()
            found = (likely * mask).sum((0, 2, 3))
        else:
            picked = likely.gather(1, target.unsqueeze(1))
            found = picked.new_zeros(classes).scatter_add(0, target.flatten(), picked.flatten())
        logits.grad = None
        (1 - found.mean() / size**2).backward()

    return step


def unmerged_adapter(device: Device, bad: bool) -> Callable[[], object]:
    """Linear layers with an adapter of rank 16 beside each, or merged into its weight."""
    import torch
    from torch import nn

    layers, rows, size, rank = device.pick((8, 4096, 2048, 16), (4, 4, 8, 2))
    options = {"bias": False, "device": device.kind, "dtype": torch.bfloat16}
    base = [nn.Linear(size, size, **options) for _ in range(layers)]
    down = [nn.Linear(size, rank, **options) for _ in range(layers)]
    up = [nn.Linear(rank, size, **options) for _ in range(layers)]
    x = torch.randn(rows, size, device=device.kind, dtype=torch.bfloat16)
    if not bad:
        with torch.no_grad():
            for layer, first, second in zip(base, down, up, strict=True):
                layer.weight += second.weight @ first.weight * 2.0

    def step() -> None:
        y = x
        with torch.no_grad():
            for layer, first, second in zip(base, down, up, strict=True):
                y = layer(y) + second(first(y)) * 2.0 if bad else layer(y)

    return step


def low_occupancy(device: Device, bad: bool) -> Callable[[], object]:
    """A running sum along 8 long rows, or along many short ones."""
    import torch

    shape = (8, 1 << 20) if bad else (1 << 13, 1 << 10)
    x = torch.randn(*device.pick(shape, (4, 16)), device=device.kind)

    def step() -> None:
        for _ in range(3):
            torch.cumsum(x, dim=1)

    return step


def far_from_bound(device: Device, bad: bool) -> Callable[[], object]:
    """Gradients of rows that are all added to one place, or spread over a table."""
    import torch

    rows, width, words = device.pick((1 << 18, 64, 1 << 16), (16, 4, 8))
    table = torch.zeros(words, width, device=device.kind)
    values = torch.randn(rows, width, device=device.kind)
    index = torch.randint(0, 2 if bad else words, (rows,), device=device.kind)

    def step() -> None:
        for _ in range(3):
            table.index_add_(0, index, values)

    return step


def gradient_scaling(device: Device, bad: bool) -> Callable[[], object]:
    """Linear layers under autocast: in float16 with a GradScaler, or in bfloat16 without."""
    import torch
    from torch import nn

    size, rows = device.pick((1024, 256), (32, 8))
    model = nn.Sequential(*(nn.Linear(size, size) for _ in range(8))).to(device.kind)
    x = torch.randn(rows, size, device=device.kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler(device.kind, enabled=bad)
    half = device.pick(torch.float16 if bad else torch.bfloat16, torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.kind, half):
            loss = model(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def outside_autocast(device: Device, bad: bool) -> Callable[[], object]:
    """An encoder and a decoder, of which autocast reaches over the first or over both."""
    import torch
    from torch import nn

    width = device.pick(2048, 32)
    with torch.device(device.kind):
        encoder, decoder = (
            nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(width, width), nn.GELU()))) for _ in range(2)
        )
        x = torch.randn(device.pick(8192, 8), width)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], 1e-4, fused=True)

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        optimizer.zero_grad()
        with torch.autocast(device.kind, torch.bfloat16):
            memory = encoder(x)
            loss = None if bad else decoder(memory).mean()
        loss = decoder(memory.float()).mean() if loss is None else loss
        loss.backward()
        optimizer.step()

    return step


WORKLOADS = (
    pair(
        "gradient_scaling",
        "a training step in float16 with GradScaler (bad) or in bfloat16 without (good)",
        gradient_scaling,
        bad="4 steps of 8 linear layers under autocast in float16, gradients unscaled and clipped",
        good="the same in bfloat16 without a scaler",
    ),
    pair(
        "outside_autocast",
        "autocast that ends before the decoder (bad) or reaches over it (good)",
        outside_autocast,
        bad="4 steps of four linear layers in bfloat16 and four in TF32",
        good="the same with all eight in bfloat16",
    ),
    pair(
        "no_tensor_cores",
        "float32 matmuls with TF32 off (bad) or on (good)",
        no_tensor_cores,
        bad="4 steps of 4 float32 matmuls on SIMT units",
        good="the same with TF32",
    ),
    pair(
        "float64_math",
        "a float64 numpy array makes a network float64 (bad), or is made float32 (good)",
        float64_math,
        bad="4 steps of 3 matmuls and tanh in float64, because of one numpy array",
        good="the same in float32, with TF32 as in the bad one",
    ),
    pair(
        "misaligned_gemm",
        "a bf16 head over 50,257 words (bad) or 50,304 (good)",
        misaligned_gemm,
        bad="4 steps of 3 bf16 matmuls with 50,257 columns",
        good="the same with 50,304 columns",
    ),
    pair(
        "fft_length",
        "convolutions by FFT of 8,191 numbers, a prime (bad), or of 8,192 (good)",
        fft_length,
        bad="4 steps of 3 convolutions of 2,048 signals with transforms of 8,191 numbers",
        good="the same with transforms of 8,192 numbers, padded by one",
    ),
    pair(
        "one_hot",
        "a Dice loss by one-hot targets (bad) or by gather and scatter_add (good)",
        one_hot,
        bad="4 steps of a loss that multiplies 96 classes with an int64 one-hot target made float32",
        good="the same sums by gather and scatter_add of the target's classes",
    ),
    pair(
        "unmerged_adapter",
        "linear layers with low-rank adapters (bad), or with the adapters merged into their weights (good)",
        unmerged_adapter,
        bad="4 steps of 8 linear layers, each with an adapter of rank 16",
        good="the same with the adapters merged",
    ),
    pair(
        "low_occupancy",
        "cumsum along 8 long rows (bad) or 8,192 short ones (good)",
        low_occupancy,
        bad="4 steps of 3 running sums along 8 rows of a million",
        good="the same number of elements in 8,192 rows",
    ),
    pair(
        "far_from_bound",
        "index_add_ into two rows (bad) or spread over a table (good)",
        far_from_bound,
        bad="4 steps of 3 index_add_ of 262,144 rows into two rows: atomics that wait for each other",
        good="the same rows spread over 65,536",
    ),
)
