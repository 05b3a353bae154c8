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
LOOKS_FIRST = "import datasets, torchmetrics, transformers\n" + TRAIN
LIGHTNING_PROFILER = """
import lightning, torch
from lightning.pytorch.profilers import PyTorchProfiler
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def training_step(self, batch, at):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(
    max_steps=60, accelerator="cpu", profiler=PyTorchProfiler(dirpath=".", filename="own"), **quiet
)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(240, 8), 4))
"""
TRAINER_PROFILER = """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
import torch
class Steps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        own.step()
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=64))
ids = torch.randint(0, 64, (120, 8))
args = TrainingArguments(
    output_dir=".", max_steps=60, per_device_train_batch_size=2, save_strategy="no", report_to=[], use_cpu=True
)
plan = torch.profiler.schedule(wait=2, warmup=1, active=2, repeat=4)
with torch.profiler.profile(schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace("own.json")) as own:
    Trainer(model, args, train_dataset=[{"input_ids": row, "labels": row} for row in ids], callbacks=[Steps()]).train()
"""
OWN_PROFILER = {"lightning_profiler": LIGHTNING_PROFILER, "trainer_profiler": TRAINER_PROFILER}
"""Programs whose profiler has precedence: it writes its trace, whether or not the recorder finds room for its own."""
QUICK = ("--skip", "2", "--timed", "6", "--steps", "3", "--max-wait", "0", "--force")


def program(name: str) -> Callable[[Path], Sequence[str]]:
    """The command of a program of plain.py."""
    return lambda _: (PYTHON, str(HERE / "plain.py"), name, "40")


def torchrun(_: Path) -> Sequence[str]:
    """Two ranks with gloo."""
    return (
        *(PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *(str(HERE / "ranks.py"), "ddp_resnet", "40"),
    )


def script(text: str) -> Callable[[Path], Sequence[str]]:
    """The command of a script with this text."""

    def command(folder: Path) -> Sequence[str]:
        (folder / "script.py").write_text(text)
        return PYTHON, "script.py"

    return command


def console_script(folder: Path) -> Sequence[str]:
    """A file that names its python in its first line."""
    (folder / "train").write_text(f"#!{PYTHON}\n{TRAIN}")
    (folder / "train").chmod(0o755)
    return ("./train",)


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
    "looks_first": script(LOOKS_FIRST),
    **{name: script(text) for name, text in OWN_PROFILER.items()},
    "console_script": console_script,
    "uv_run": lambda _: (PYTHON, "-m", "uv", "run", "--no-project", "--python", PYTHON, "train.py"),
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
            options = QUICK if name in OWN_PROFILER else (*QUICK, "--require")
            words = [PYTHON, "-m", "traceanalyzer", "record", *options, "--", *COMMANDS[name](Path(folder))]
            env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
            env["PYTHONPATH"] = os.pathsep.join((folder, str(HERE), env.get("PYTHONPATH", "")))
            done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
            lines = [line for line in done.stderr.splitlines() if line.startswith("traceanalyzer record:")]
            traces = len([*Path(folder).glob("trace*.json.gz")])
            own = name not in OWN_PROFILER or any(Path(folder).glob("*own*"))
            bad = done.returncode != 0 or not own or (name not in OWN_PROFILER and not traces)
            failed += bad
            print(f"{name}: exit code {done.returncode}, {traces} files", *lines, sep="\n  ", flush=True)
            if bad:
                print(done.stderr[-1500:])
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
