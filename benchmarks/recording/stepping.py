"""Programs whose step is not obvious, and programs that end badly: stepping.py NAME STEPS."""

from __future__ import annotations

import os
import signal
import sys

import torch
from clock import CUDA, DEVICE, SMALL, Clock

WIDTH = 64 if SMALL else 2048


def _network(depth: int = 4) -> torch.nn.Sequential:
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers).to(DEVICE)


def graphs(steps: int) -> None:
    """A token per replay; each batch size has a CUDA graph of its own. Unit: graph replay."""
    clock = Clock()
    network = _network(8)
    if not CUDA:
        sys.exit("needs CUDA")
    captured = {}
    for batch in (8, 16, 32, 64):
        rows = torch.randn(batch, WIDTH, device=DEVICE)
        network(rows)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            out = network(rows)
        captured[batch] = (graph, rows, out)
    for at in range(steps):
        graph, _, out = captured[(64, 32, 16, 8)[at * 17 // 100 % 4]]
        graph.replay()
        out[0, 0].item()
        clock.step()
    clock.save()


def decode(steps: int) -> None:
    """Tokens one by one, with a cache that grows; a prompt first. Unit: forward pass."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=2 if SMALL else 8,
        hidden_size=64 if SMALL else 1024,
        intermediate_size=128 if SMALL else 2816,
        num_attention_heads=4 if SMALL else 16,
        vocab_size=128,
    )
    model = LlamaForCausalLM(config).eval()
    clock = Clock()
    model.to(DEVICE)
    ids = torch.randint(0, 128, (4, 32), device=DEVICE)
    cache = None
    with torch.no_grad():
        for _ in range(steps):
            result = model(input_ids=ids, past_key_values=cache, use_cache=True)
            cache, ids = result.past_key_values, result.logits[:, -1:].argmax(-1)
            clock.step()
    clock.save()


def inference(steps: int) -> None:
    """Batches through a model in eval mode. Unit: forward pass."""
    clock = Clock()
    network = _network(16).eval()
    rows = torch.randn(8 if SMALL else 4096, WIDTH, device=DEVICE)
    with torch.no_grad():
        for _ in range(steps):
            network(rows).sum().item()
            clock.step()
    clock.save()


def two_optimizers(steps: int) -> None:
    """A critic that steps three times per step of the generator. Unit: optimizer step of the generator."""
    clock = Clock()
    critic, generator = _network(), _network()
    ours = torch.optim.Adam(critic.parameters(), lr=1e-4)
    other = torch.optim.Adam(generator.parameters(), lr=1e-4)
    rows = torch.randn(8 if SMALL else 2048, WIDTH, device=DEVICE)
    for _ in range(steps):
        for _ in range(3):
            ours.zero_grad()
            critic(generator(rows).detach()).mean().backward()
            ours.step()
        other.zero_grad()
        critic(generator(rows)).mean().backward()
        other.step()
        clock.step()
    clock.save()


def accumulation(steps: int) -> None:
    """Gradients of four batches, an evaluation after every twentieth step. Unit: optimizer step."""
    clock = Clock()
    network = _network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    rows = torch.randn(8 if SMALL else 1024, WIDTH, device=DEVICE)
    for at in range(steps):
        for _ in range(4):
            network(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if at % 20 == 19:
            with torch.no_grad():
                for _ in range(10):
                    network(rows)
        clock.step()
    clock.save()


def settles(steps: int) -> None:
    """Each of the first fifteen steps has a new shape, for which torch.compile compiles. Unit: optimizer step."""
    clock = Clock()
    network = _network()
    torch._dynamo.config.cache_size_limit = 64
    if hasattr(torch._dynamo.config, "recompile_limit"):
        torch._dynamo.config.recompile_limit = 64
    fast = torch.compile(network, dynamic=False, backend="eager" if SMALL else "inductor")
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    for at in range(steps):
        rows = torch.randn(8 * (1 + min(at, 15)), WIDTH, device=DEVICE)
        fast(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.step()
    clock.save()


def _training_that(ends: str, steps: int) -> None:
    clock = Clock()
    network = _network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    table = torch.nn.Embedding(16, WIDTH, device=DEVICE)
    for at in range(steps):
        rows = torch.randint(0, 16, (64,), device=DEVICE)
        if at == 39:
            if ends == "asserts":
                rows = rows + 99
            elif ends == "raises":
                raise ValueError("no")
            elif ends == "is terminated":
                os.kill(os.getpid(), signal.SIGTERM)
        network(table(rows)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.step()
    clock.save()


def asserts(steps: int) -> None:
    """A device-side assertion in step 40, within the recorded ones."""
    _training_that("asserts", steps)


def raises(steps: int) -> None:
    """An exception in step 40."""
    _training_that("raises", steps)


def terminated(steps: int) -> None:
    """SIGTERM in step 40."""
    _training_that("is terminated", steps)


def own_profiler(steps: int) -> None:
    """The program has a profiler of its own around every step."""
    clock = Clock()
    network = _network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    rows = torch.randn(64, WIDTH, device=DEVICE)
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=20, warmup=2, active=2, repeat=3)) as profiler:
        for _ in range(steps):
            network(rows).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            clock.step()
            profiler.step()
    clock.save()


def late_profiler(steps: int) -> None:
    """The program starts a profiler within the recorded steps."""
    clock = Clock()
    network = _network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    rows = torch.randn(64, WIDTH, device=DEVICE)
    profiler = torch.profiler.profile()
    for at in range(steps):
        network(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.step()
        if at == 38:
            profiler.start()
        if at == 44:
            profiler.stop()
    clock.save()


PROGRAMS = {
    run.__name__: run
    for run in (
        *(graphs, decode, inference, two_optimizers, accumulation, settles),
        *(asserts, raises, terminated, own_profiler, late_profiler),
    )
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](int(sys.argv[2]))
