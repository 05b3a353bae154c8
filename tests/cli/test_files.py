"""Outputs: refused early, written whole or not at all."""

import os
from pathlib import Path

import pytest

from traceanalyzer.cli.output import check_outputs, made, written
from traceanalyzer.model.errors import BadOption, OutputExists, TraceAnalyzerError


def test_a_file_that_is_there_is_kept_unless_forced(tmp_path: Path) -> None:
    there = tmp_path / "report.json"
    there.write_text("old")
    with pytest.raises(OutputExists, match=r"report\.json: already exists\n.*--force"):
        check_outputs([there])
    check_outputs([there], force=True)
    assert there.read_text() == "old"


def test_outputs_must_differ_from_each_other_and_from_the_trace(tmp_path: Path) -> None:
    one = tmp_path / "one"
    with pytest.raises(BadOption, match="two outputs go to one file"):
        check_outputs([one, tmp_path / "." / "one"])
    with pytest.raises(BadOption, match="would overwrite the trace"):
        check_outputs([one], inputs=[one], force=True)


@pytest.mark.parametrize("name", ["trace.json", "sub/../trace.json", "link.json"])
def test_a_file_is_known_by_its_other_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the working folder, by way of another folder, and through a link."""
    trace, report = tmp_path / "trace.json", tmp_path / "report.json"
    trace.write_text("{}")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.json").symlink_to(trace)
    monkeypatch.chdir(tmp_path)
    for path, known in ((Path(name), trace), (trace, Path(name))):
        with pytest.raises(BadOption, match="would overwrite the trace"):
            check_outputs([report, path], inputs=[report.with_name("other.json"), known], force=True)
        with pytest.raises(BadOption, match="two outputs go to one file"):
            check_outputs([path, report, known], force=True)


def test_folders_are_looked_at_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(TraceAnalyzerError, match="its folder does not exist"):
        check_outputs([tmp_path / "absent" / "report.json"])
    with pytest.raises(TraceAnalyzerError, match="is a folder"):
        check_outputs([tmp_path], force=True)


def test_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(TraceAnalyzerError, match="cannot be written to"):
        check_outputs([tmp_path / "report.json"])


def test_content_takes_the_place_at_the_end_only(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"old")
    with written(path) as stream:
        stream.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def interrupting() -> bytes:
    """Ctrl-C while the content is made."""
    raise KeyboardInterrupt


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), written(path) as stream:
        stream.write(interrupting())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with written(link) as stream:
        stream.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_devices_are_written_to_and_need_no_force() -> None:
    check_outputs([Path(os.devnull)])
    with written(Path(os.devnull)) as stream:
        stream.write(b"gone")
    assert not Path(os.devnull).is_file()


def test_what_the_system_refuses_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceAnalyzerError, match="cannot be written: No such file"), written(tmp_path / "a" / "b"):
        pass
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TraceAnalyzerError, match="cannot be created"):
        made(tmp_path / "file" / "below")


def test_a_broken_pipe_stays_one(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), written(tmp_path / "report.json"):
        raise BrokenPipeError
    assert not list(tmp_path.iterdir())
