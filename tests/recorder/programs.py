"""Programs that know nothing of the recorder, and the command that records them."""

import atexit
import gzip
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any
from unittest import mock

import pytest

from traceanalyzer.cli.app import run

REPOSITORY = Path(__file__).parents[2]

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="no torch")  # imported by programs alone

LOOP = """
import sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({steps}):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    {after}
print("ended")
"""

NO_COMPILER = """
import sys, types
def stand_in(name, **attributes):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(attributes)
stand_in("torch._dynamo", disable=lambda function, *args, **named: function, graph_break=lambda: None)
stand_in("torch._inductor.config", triton=types.SimpleNamespace(cudagraphs=False))
stand_in("torch._inductor", config=sys.modules["torch._inductor.config"])
"""
"""Optimizers and the profiler import torch's compiler, which takes as long as the rest of torch."""

QUICK = ("--skip", "2", "--timed", "6", "--steps", "3", "--max-wait", "0", "--no-tensors")
"""24 steps are enough: timed from the end of step 3 to that of 9, 2 under the profiler, 12 to 14 recorded, 4 to settle,
and timed again to the end of 24."""


def recorded(
    folder: Path, program: str, *options: str, words: tuple[str, ...] = (), real: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the program under `traceanalyzer record` in the folder; the trace is `trace.json.gz` there.

    Args:
        real: the command is a process, as a user starts it, and the program has all of torch; else it is called here.
    """
    (folder / "train.py").write_text(program if real else NO_COMPILER + program)
    env = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    usual = (sys.executable, "train.py") if real else (*preloaded(), "train.py")
    whole = ["record", *QUICK, *options, "--", *(words or usual)]
    if not real:
        return _called(folder, whole, env)
    return subprocess.run(
        [sys.executable, "-m", "traceanalyzer", *whole],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **env},
        timeout=240,
    )


@cache
def preloaded() -> tuple[str, ...]:
    """What runs a program in a fork of a process that has imported torch: see tests/recorder/preloaded.py."""
    script, folder = str(REPOSITORY / "tests" / "recorder" / "preloaded.py"), TemporaryDirectory()
    address = f"{folder.name}/socket"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen([sys.executable, script, address], stdin=subprocess.DEVNULL, env=env)
    for last in (folder.cleanup, server.wait, server.kill):  # in the other order
        atexit.register(last)
    while not Path(address).exists() and server.poll() is None:
        time.sleep(0.05)
    return sys.executable, "-I", script, address


def run_command(folder: Path, words: list[str], libraries: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`record` with these words; its program finds packages in `libraries` before all others."""
    path = [str(libraries)] * (libraries is not None) + [str(REPOSITORY)]
    return _called(folder, ["record", *QUICK, *words], {"PYTHONPATH": os.pathsep.join(path)})


def _called(folder: Path, whole: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The command in this process, which spares its start; its streams, and those of what it starts, in files."""
    with ExitStack() as stack:
        stack.enter_context(chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ, env))
        streams = [stack.enter_context(TemporaryFile("w+", encoding="utf-8")) for _ in (1, 2)]
        for number, stream in enumerate(streams, start=1):
            stack.callback(os.close, before := os.dup(number))
            stack.callback(os.dup2, before, number)
            os.dup2(stream.fileno(), number)
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            code = run(whole)
        for one in streams:
            one.seek(0)
        return subprocess.CompletedProcess(whole, code, *(one.read() for one in streams))


def trace_of(path: Path) -> dict[str, Any]:
    """The file as JSON."""
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def steps_of(path: Path) -> int:
    """Marked steps of the file."""
    events = trace_of(path)["traceEvents"]
    return len({e["name"] for e in events if e.get("name", "").startswith("ProfilerStep#")})


def left_in(folder: Path) -> list[str]:
    """All files but the program."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.suffix != ".py")
