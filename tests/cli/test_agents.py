"""`mcp` and `skill`: which folders an agent may read, and that no file of a skill is replaced unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import call, refused
from traceanalyzer.integrations import server
from traceanalyzer.integrations.answers import Roots


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Roots]:
    """What would be served; nothing listens."""
    found: list[Roots] = []
    monkeypatch.setattr(server, "serve", found.append)
    return found


def test_mcp_reads_named_folders_or_the_current_one(
    served: list[Roots], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path)
    for given in ((), ("b", "a"), (tmp_path / "a",)):
        assert call("mcp", *given).exit_code == 0
    assert [one.folders for one in served] == [
        (tmp_path,),
        (Path("b"), Path("a")),
        (tmp_path / "a",),
    ]


def test_mcp_refuses_to_serve_a_missing_folder(served: list[Roots], tmp_path: Path) -> None:
    (file := tmp_path / "trace.json").touch()
    assert refused("mcp", tmp_path, tmp_path / "none").startswith(f"{tmp_path / 'none'}: is no folder")
    assert call("mcp", file).exit_code == 2
    assert served == []


def test_skill_is_only_printed_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = call("skill")
    assert (printed.exit_code, printed.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
    assert call("skill", "--install", "deep/skills").exit_code == 0
    assert (tmp_path / "deep/skills/traceanalyzer/SKILL.md").read_text("utf-8") == printed.stdout


@pytest.mark.parametrize("name", ["SKILL.md", "references/units.md"])
def test_skill_does_not_replace_files_without_force(name: str, tmp_path: Path) -> None:
    """Whichever of them it is, and each with its own content."""
    there = tmp_path / "traceanalyzer" / name
    there.parent.mkdir(parents=True)
    there.write_text("mine")
    assert refused("skill", "--install", tmp_path).startswith(f"{there}: already exists")
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [there]
    assert there.read_text() == "mine"
    assert call("skill", "--install", tmp_path, "--force").exit_code == 0
    contents = {one.read_bytes() for one in tmp_path.rglob("*.md")}
    assert len(contents) == 3
    assert b"mine" not in contents
