"""docs/recipes.md: every recipe runs as it is written.

Lightning and transformers are used where they are installed. Elsewhere a stand-in has the base class, and its
public hooks are called in their documented order.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.recorder.programs import NO_COMPILER, REPOSITORY, steps_of, trace_of
from tests.support.fixtures import FIXTURES
from tests.support.xdist_groups import with_torch
from traceanalyzer.model.step_times import RECORDING

TEXT = (REPOSITORY / "docs" / "recipes.md").read_text("utf-8")
BATCHES = 80
pytestmark = [with_torch, pytest.mark.filterwarnings("ignore")]  # of torch, where there is no GPU


def recipe(heading: str, language: str = "python") -> str:
    """The block of code below the heading."""
    block = TEXT.partition(f"## {heading}\n")[2].partition(f"```{language}\n")[2].partition("```")[0]
    assert block, heading
    return block


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    weights = torch.rand(8, 8)
    return {"loader": [weights] * BATCHES, "train_step": lambda batch: batch @ weights}


def is_recorded(path: Path) -> None:
    """Six steps, timed before and after."""
    assert steps_of(path) == 6
    told = trace_of(path)[RECORDING]
    assert len(told["before_ms"]) == len(told["after_ms"]) == 3
    names = [event.get("name") for event in trace_of(path)["traceEvents"]]
    assert names.count("aten::matmul") + names.count("aten::linear") == 6


def test_a_plain_loop(training: dict[str, Any], tmp_path: Path) -> None:
    exec(recipe("A plain loop"), training)
    is_recorded(tmp_path / "trace.json.gz")


def test_lightning(training: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("lightning") is None:
        monkeypatch.setitem(sys.modules, "lightning", with_class("Callback"))
    exec(recipe("Lightning"), training)
    if "Trainer" in vars(training["lightning"]):
        fit_with_lightning(training["lightning"], training["Record"]())
    else:
        record = training["Record"]()
        record.on_train_start(None, None)
        for number, batch in enumerate(training["loader"]):
            record.on_train_batch_end(None, None, training["train_step"](batch), batch, number)
        record.on_train_end(None, None)
    is_recorded(tmp_path / "trace.json.gz")


def fit_with_lightning(lightning: Any, callback: Any) -> None:
    import torch

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", callbacks=[callback], **quiet)
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(BATCHES, 8)))


def test_hugging_face_trainer(training: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("transformers") is None:
        monkeypatch.setitem(sys.modules, "transformers", with_class("TrainerCallback"))
    exec(recipe("Hugging Face Trainer"), training)
    record = training["Record"]()
    if hasattr(sys.modules["transformers"], "Trainer"):
        train_with_transformers(record)
    else:
        record.on_train_begin(None, None, None, model=None)
        for batch in training["loader"]:
            training["train_step"](batch)
            record.on_step_end(None, None, None, model=None)
        record.on_train_end(None, None, None, model=None)
    is_recorded(tmp_path / "trace.json.gz")


def train_with_transformers(callback: Any) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x: Any, labels: Any = None) -> Any:
            return {"loss": self.layer(x).sum()}

    data = [{"x": torch.ones(8), "labels": torch.ones(1)}] * BATCHES
    quiet = {"save_strategy": "no", "report_to": [], "disable_tqdm": True, "use_cpu": True}
    arguments = TrainingArguments("out", per_device_train_batch_size=1, max_steps=BATCHES, **quiet)
    Trainer(Model(), arguments, train_dataset=data, callbacks=[callback]).train()


def with_class(name: str) -> ModuleType:
    module = ModuleType("stand_in")
    setattr(module, name, type(name, (), {}))
    return module


def test_while_it_trains(training: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    training["loader"] = training["loader"][:1] * 500
    exec(recipe("While it trains"), training)
    wait_for_threads()
    told = [line for line in capfd.readouterr().err.splitlines() if "USDT" not in line]
    head = next(i for i, line in enumerate(told) if line.startswith("traceanalyzer: window 1; it cost"))
    assert [line.split()[0] for line in told[head + 1 : head + 5]] == ["Step", "Limit", "Fix", "Since"]


def wait_for_threads() -> None:
    import threading

    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(120)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """A folder with a program and a baseline of `implicit-sync`; runs lines of a shell in it."""
    monkeypatch.chdir(tmp_path)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, words in (("traceanalyzer", f"{sys.executable} -m traceanalyzer"), ("python", sys.executable)):
        (bin_ / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (bin_ / name).chmod(0o755)
    path = os.pathsep.join([str(bin_), os.environ["PATH"]])
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PATH": path, "GITHUB_STEP_SUMMARY": "summary.md"}

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, check=False, cwd=tmp_path, env=env, timeout=240
        )

    (tmp_path / "train.py").write_text(
        f"{NO_COMPILER}\nimport torch\nm = torch.nn.Linear(8, 8)\no = torch.optim.SGD(m.parameters())\n"
        "for _ in range(100): o.zero_grad(); m(torch.ones(4, 8)).sum().backward(); o.step()\n"
    )
    shutil.copy(FIXTURES / "implicit-sync" / "bad.json.gz", tmp_path / "trace.json.gz")
    assert run("traceanalyzer diagnose trace.json.gz --format json -o findings.json").returncode == 0
    return run


@pytest.mark.slow
def test_the_hook_passes_what_is_known_and_fails_what_is_new(
    project: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    fields = dict(re.findall(r"^ +-? ?(\w+): (.*)$", recipe("A gate before each commit", "yaml"), re.M))
    assert (fields["language"], fields["pass_filenames"]) == ("system", "false")
    assert re.search(fields["files"], "trace.json.gz")
    known = project(fields["entry"])
    assert known.returncode == 0, known.stderr
    shutil.copy(FIXTURES / "exposed-copy" / "bad.json.gz", tmp_path / "trace.json.gz")
    new = project(fields["entry"])
    assert new.returncode == 1
    assert "exposed-copy" in new.stdout


@pytest.mark.slow
def test_the_workflow_records_gates_and_annotates(
    project: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    record, gate, sarif = re.findall(r"run: (.*)$", recipe("A gate for each pull request", "yaml"), re.M)
    (tmp_path / "trace.json.gz").unlink()
    recorded = project(record)
    assert recorded.returncode == 0, recorded.stderr
    assert steps_of(tmp_path / "trace.json.gz") == 6
    assert project(gate).returncode == 0
    shutil.copy(FIXTURES / "exposed-copy" / "bad.json.gz", tmp_path / "trace.json.gz")
    failed = project(gate)
    assert failed.returncode == 1
    assert failed.stdout.startswith("::error ")
    assert "exposed-copy" in (tmp_path / "summary.md").read_text("utf-8")
    assert project(sarif).returncode == 0
    assert (tmp_path / "traceanalyzer.sarif").stat().st_size > 100
