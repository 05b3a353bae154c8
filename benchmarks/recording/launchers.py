"""Records small programs of real libraries on the CPU, through real launchers, and prints what became of each.

    python benchmarks/recording/launchers.py [NAME...]

Exits with 1 where one failed, or recorded nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
TRAIN = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def test_train():
    for _ in range(60):
        optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step()
if __name__ == "__main__":
    test_train()
"""
NOTEBOOK = """
import json, sys
cell = {"cell_type": "code", "source": open("train.py").read(), "metadata": {}, "outputs": [], "execution_count": None}
json.dump({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, open("train.ipynb", "w"))
"""
QUICK = ("--skip", "2", "--timed", "6", "--steps", "3", "--max-wait", "0", "--force", "--require")


def program(name: str) -> Callable[[Path], Sequence[str]]:
    """The command of a program of plain.py."""
    return lambda _: (PYTHON, str(HERE / "plain.py"), name, "40")


def torchrun(_: Path) -> Sequence[str]:
    """Two ranks with gloo."""
    return (
        *(PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *(str(HERE / "ranks.py"), "ddp_resnet", "40"),
    )


def notebook(folder: Path) -> Sequence[str]:
    """A notebook that is executed."""
    subprocess.run([PYTHON, "-c", NOTEBOOK], cwd=folder, check=True)
    return PYTHON, "-m", "nbconvert", "--to", "notebook", "--execute", "train.ipynb"


COMMANDS: dict[str, Callable[[Path], Sequence[str]]] = {
    **{
        name: program(name)
        for name in (
            *("timm_resnet", "hf_trainer", "accelerate_bert", "lightning_vit", "compiled_llama"),
            "infer_towers",
        )
    },
    "module": lambda _: (PYTHON, "-m", "train"),
    "torchrun": torchrun,
    "accelerate_launch": lambda _: (PYTHON, "-m", "accelerate.commands.launch", "--cpu", "train.py"),
    "notebook": notebook,
    "pytest": lambda _: (PYTHON, "-m", "pytest", "-q", "train.py"),
}


def main() -> int:
    failed = 0
    for name in sys.argv[1:] or COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.py").write_text(TRAIN)
            words = [PYTHON, "-m", "traceanalyzer", "record", *QUICK, "--", *COMMANDS[name](Path(folder))]
            env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
            env["PYTHONPATH"] = os.pathsep.join((folder, str(HERE), env.get("PYTHONPATH", "")))
            done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
            lines = [line for line in done.stderr.splitlines() if line.startswith("traceanalyzer record:")]
            traces = len([*Path(folder).glob("trace*.json.gz")])
            bad = done.returncode != 0 or not traces
            failed += bad
            print(f"{name}: exit code {done.returncode}, {traces} files", *lines, sep="\n  ", flush=True)
            if bad:
                print(done.stderr[-1500:])
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
