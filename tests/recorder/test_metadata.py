"""What a recording contains about its program: versions, device, command, commit, environment, and no secret."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder.metadata import ENVIRONMENT, described, without_secrets


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["--api-key", "abc", "--lr", "1"], ["--api-key", "***", "--lr", "1"]),
        (["--token=abc", "x"], ["--token=***", "x"]),
        (["HF_TOKEN=abc", "x"], ["HF_TOKEN=***", "x"]),
        (["--no-auth", "--lr", "1"], ["--no-auth", "--lr", "1"]),
        (["tokenize.py", "data"], ["tokenize.py", "data"]),
        (["--url", "https://me:pw@host/x"], ["--url", "https://***@host/x"]),
        (["me@host"], ["me@host"]),
        (["https://host/me@x"], ["https://host/me@x"]),
        (["--max-tokens", "512"], ["--max-tokens", "512"]),
        (["--num-key-value-heads=8"], ["--num-key-value-heads=8"]),
        (["--hub", "hf_abcdefghijkl"], ["--hub", "***"]),
        (["--note", "AKIAIOSFODNN7EXAMPLE"], ["--note", "***"]),
        (
            ["https://s3/x?X-Amz-Signature=ab12&part=3&X-Amz-Expires=60"],
            ["https://s3/x?X-Amz-Signature=***&part=3&X-Amz-Expires=***"],
        ),
        (["--header", "Authorization: Bearer abc.def"], ["--header", "Authorization: Bearer ***"]),
        (['--config={"password": "abc", "lr": 1}'], ['--config={"password": "***", "lr": 1}']),
    ],
)
def test_secrets_of_the_command_are_hidden(command: list[str], shown: list[str]) -> None:
    assert without_secrets(["train.py", *command]) == ["train.py", *shown]


@pytest.mark.parametrize(("available", "gpu"), [(True, "H100"), (False, None)])
def test_only_variables_that_change_speed_are_stored(
    available: bool, gpu: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = SimpleNamespace(
        __version__="2.9",
        version=SimpleNamespace(cuda="12.6", hip=None),
        cuda=SimpleNamespace(is_available=lambda: available, get_device_name=lambda: "H100"),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(sys, "argv", ["train.py", "--api-key", "abc"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert described() == {
        "torch": "2.9",
        "cuda": "12.6",
        "hip": None,
        "gpu": gpu,
        "python": sys.version.split()[0],
        "command": ["train.py", "--api-key", "***"],
        "commit": None,
        "environment": {"RANK": "0", "CUDA_VISIBLE_DEVICES": ""},
    }


def test_the_commit_is_marked_if_files_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = SimpleNamespace(
        __version__="2.9",
        version=SimpleNamespace(cuda=None, hip=None),
        cuda=SimpleNamespace(is_available=lambda: False),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    (tmp_path / "train.py").write_text("1")
    for words in (("init", "-q"), ("add", "train.py"), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *words], check=True)
    commit = described()["commit"]
    assert len(commit) == 40
    (tmp_path / "new.py").write_text("2")
    assert described()["commit"] == commit
    (tmp_path / "train.py").write_text("2")
    assert described()["commit"] == f"{commit}+"
    monkeypatch.setenv("PATH", "")
    assert described()["commit"] is None
