"""The step that the recorder measures is the one that the program measures of itself, within 2 %, in the same run.

Ranks of torchrun are recorded each in a file of its own.

With TRACEANALYZER_ALL=1 also that of a run without anything, which takes a quiet machine. The programs sleep for most
of a step, so that a busy machine changes them little; each may be tried five times.
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from tests.recorder.programs import left_in, needs_torch, recorded, trace_of
from tests.support.trace_selection import ALL
from traceanalyzer.model.step_times import RECORDING, MeasuredStep
from traceanalyzer.recorder.timer import PARTS

pytestmark = needs_torch

_CLOSE = 0.02  # of the step
_TRIES = 5
SKIP, TIMED = 2, 6  # of tests.recorder.programs.QUICK

HEAD = """
import os, statistics, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
ends = []
def slept():
    time.sleep(0.1)
    ends.append(time.perf_counter())
def told(skip, blocks, block):
    if os.environ.get("RANK", "0") == "0":
        marks = [ends[skip + block * n] for n in range(blocks + 1)]
        print(statistics.median(b - a for a, b in zip(marks, marks[1:])) * 1e3 / block)
"""
TAIL = f"\ntold({SKIP}, {PARTS}, {TIMED // PARTS})\n"

PLAIN = """
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(26):
    optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step(); slept()
"""
TRAINER = """
class Accelerated(torch.optim.Optimizer):
    def __init__(self, inner): self.inner = inner
    param_groups = property(lambda self: self.inner.param_groups)
    def step(self): self.inner.step()
    def zero_grad(self): self.inner.zero_grad()
class Trainer:
    def __init__(self, callbacks):
        self.optimizer = Accelerated(torch.optim.AdamW(model.parameters()))
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer.inner, lambda step: 1.0)
        self.callbacks = callbacks
    def train(self):
        for _ in range(26):
            for _ in range(2): model(torch.ones(4, 8)).sum().backward()
            self.optimizer.step(); self.scheduler.step(); self.optimizer.zero_grad()
            for callback in self.callbacks: callback()
Trainer([slept]).train()
"""
COMPILED = """
fast = torch.compile(model, backend="eager")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(26):
    optimizer.zero_grad(); fast(torch.ones(4, 8)).sum().backward(); optimizer.step(); slept()
"""
PARALLEL = """
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(26):
    optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step(); slept()
del model, optimizer
dist.barrier()
time.sleep(0.5)  # gloo's threads abort a process whose peer leaves before it
dist.destroy_process_group()
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def alone_ms(folder: Path, words: tuple[str, ...]) -> float:
    """The step that the program prints of itself."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=folder, env=env, timeout=240)
    return float(done.stdout)


@pytest.mark.parametrize(
    ("program", "launcher", "trace"),
    [
        pytest.param(PLAIN, (), "trace.json.gz", id="plain loop", marks=pytest.mark.slow),
        pytest.param(TRAINER, (), "trace.json.gz", id="trainer", marks=pytest.mark.slow),
        pytest.param(COMPILED, (), "trace.json.gz", id="compiled", marks=pytest.mark.slow),
        pytest.param(PARALLEL, TORCHRUN, "trace-rank0.json.gz", id="two ranks", marks=pytest.mark.slow),
    ],
)
def test_measured_step_is_its_own(program: str, launcher: tuple[str, ...], trace: str, tmp_path: Path) -> None:
    words = (sys.executable, *launcher, "train.py")
    off = []
    for _ in range(_TRIES):
        done = recorded(tmp_path, HEAD + program + TAIL, "--force", words=words, real=program in (COMPILED, PARALLEL))
        assert done.returncode == 0, done.stderr
        told = trace_of(tmp_path / trace)[RECORDING]
        assert told["unit"] == "optimizer step"
        if launcher:
            assert left_in(tmp_path) == ["trace-rank0.json.gz", "trace-rank1.json.gz"]
            ranks = [trace_of(tmp_path / name)[RECORDING]["environment"]["RANK"] for name in left_in(tmp_path)]
            assert ranks == ["0", "1"]
        own_ms = alone_ms(tmp_path, words) if ALL else float(done.stdout.splitlines()[0])
        off.append(median(told["before_ms"]) / own_ms - 1)
        if abs(off[-1]) <= _CLOSE:
            return
    pytest.fail(f"off by {', '.join(f'{one:+.1%}' for one in off)}")


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ((10.0, 12.0), (11.9, 12.1), False),  # as far apart as the first spread
        ((10.0, 10.2), (11.9, 12.1), True),
        ((11.9, 12.1), (10.0, 12.0), False),
    ],
)
def test_differing_times_and_spread(before: tuple[float, ...], after: tuple[float, ...], differ: bool) -> None:
    assert MeasuredStep(11.0, before, after, "optimizer step").differ is differ
