"""The cache gives what reading gives, and nothing that is stale or damaged is ever taken from it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.read.same import assert_same
from tests.read.samples import everything
from tests.support.cached_reports import loaded
from tests.support.trace_builder import TraceBuilder
from tests.support.trace_selection import one_of_each_writer
from traceanalyzer.model.trace import Trace
from traceanalyzer.read import cache as module
from traceanalyzer.read import load as load_module
from traceanalyzer.read.load import load, load_file


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "traceanalyzer"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by one whenever a file is really read."""
    calls: list[Any] = []
    read: Callable[..., Any] = load_module._read

    def counted(*args: Any) -> Any:
        calls.append(args)
        return read(*args)

    monkeypatch.setattr(load_module, "_read", counted)
    return calls


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return everything().write(tmp_path / "trace.json")


def test_the_second_time_nothing_is_read(path: Path, reads: list[Any]) -> None:
    first = load_file(path, cache=True)
    second = load(path, cache=True)
    assert isinstance(second, Trace)
    assert len(reads) == 1
    assert_same(second, first, but=())
    assert_same(second, load_file(path), but=())
    assert len(reads) == 2


def test_what_is_kept_is_readable_by_the_user_alone(path: Path, home: Path) -> None:
    load_file(path, cache=True)
    (kept,) = home.iterdir()
    assert (home.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_table_that_others_may_write_is_read_again(path: Path, home: Path, reads: list[Any]) -> None:
    load_file(path, cache=True)
    (kept,) = home.iterdir()
    kept.chmod(0o622)
    load_file(path, cache=True)
    assert len(reads) == 2


def test_nothing_is_kept_unless_asked_for(path: Path, home: Path) -> None:
    load_file(path)
    assert not home.exists()


@pytest.mark.of_shared(wanted=one_of_each_writer)
def test_real_traces_come_back_the_same(shared_trace: Path) -> None:
    load_file(shared_trace, cache=True)
    assert_same(load_file(shared_trace, cache=True), loaded(shared_trace), but=())


def test_a_changed_file_is_read_again_and_replaces_the_old(path: Path, home: Path, reads: list[Any]) -> None:
    load_file(path, cache=True)
    os.utime(path, ns=(1, 1))
    load_file(path, cache=True)
    everything().write(path, "minified")
    load_file(path, cache=True)
    assert len(reads) == 3
    assert len(list(home.iterdir())) == 1


def test_another_schema_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[Any]) -> None:
    load_file(path, cache=True)
    monkeypatch.setattr(module, "SCHEMA_VERSION", -1)
    load_file(path, cache=True)
    assert len(reads) == 2


@pytest.mark.parametrize("where", [0.0, 0.1, 0.5, 0.9, 0.9999])
def test_one_flipped_bit_is_found(path: Path, home: Path, reads: list[Any], where: float) -> None:
    fresh = load_file(path, cache=True)
    (kept,) = home.iterdir()
    content = bytearray(kept.read_bytes())
    content[int(where * len(content))] ^= 4
    kept.write_bytes(content)
    assert_same(load_file(path, cache=True), fresh)
    assert len(reads) == 2
    load_file(path, cache=True)
    assert len(reads) == 2


@pytest.mark.parametrize("content", [b"", b"abc", b"\0\0\0\0", b"\0" * 4_000, None])
def test_what_is_no_cache_is_replaced(path: Path, home: Path, reads: list[Any], content: bytes | None) -> None:
    fresh = load_file(path, cache=True)
    (kept,) = home.iterdir()
    kept.write_bytes(kept.read_bytes()[:-500] if content is None else content)
    assert_same(load_file(path, cache=True), fresh)
    assert len(reads) == 2


def test_a_folder_that_cannot_be_written_to_costs_nothing(path: Path, home: Path) -> None:
    home.parent.mkdir()
    home.write_text("a file where the folder should be")
    assert_same(load_file(path, cache=True), load_file(path))


def test_what_is_no_file_is_not_cached(tmp_path: Path, home: Path) -> None:
    with pytest.raises(Exception, match="no such file"):
        load_file(tmp_path / "missing.json", cache=True)
    assert not home.exists()


def test_cache_key_has_path_size_and_time_of_the_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    (other := tmp_path / "other").mkdir()
    same = everything().write(other / path.name)
    for one in (path, same):
        os.utime(one, ns=(5, 5))
    place = module.place_of(path, ".arrow")
    assert place is not None
    assert place.parent == home
    assert module.place_of(same, ".arrow") != place
    monkeypatch.chdir(tmp_path)
    assert module.place_of(Path(path.name), ".arrow") == place
    assert module.place_of(other / ".." / path.name, ".arrow") == place
    assert module.place_of(path, ".pickle") == place.with_suffix(".pickle")
    with path.open("ab") as stream:
        stream.write(b" ")
    os.utime(path, ns=(5, 5))
    longer = module.place_of(path, ".arrow")
    os.utime(path, ns=(5, 6))
    later = module.place_of(path, ".arrow")
    monkeypatch.setattr(module, "__version__", "9.9")
    assert len({place, longer, later, module.place_of(path, ".arrow")}) == 4
    assert module.place_of(tmp_path, ".arrow") is None


@pytest.mark.parametrize(
    ("environment", "begins"),
    [
        ({"XDG_CACHE_HOME": "/x", "LOCALAPPDATA": "/l"}, "/x/traceanalyzer/"),
        ({"XDG_CACHE_HOME": "", "LOCALAPPDATA": "/l"}, "/l/traceanalyzer/"),
        ({}, "/h/.cache/traceanalyzer/"),
    ],
)
def test_where_it_is_kept(
    environment: dict[str, str], begins: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/h", **environment}.items():
        monkeypatch.setenv(name, value)
    assert str(module.place_of(path, ".arrow")).startswith(begins)


def test_cached_file_keeps_its_requested_name(
    path: Path, tmp_path: Path, home: Path, reads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = everything().write(tmp_path / "other.json")
    for one in (path, other):
        load_file(one, cache=True)
    assert len(list(home.iterdir())) == 2
    monkeypatch.chdir(tmp_path)
    assert load_file(path.name, cache=True).meta.source == path.name
    assert load_file(other, cache=True).meta.source == str(other)
    assert len(reads) == 2


def test_damage_devices_and_the_window_come_back(tmp_path: Path, reads: list[Any]) -> None:
    path = tmp_path / "cut.json"
    path.write_bytes(everything().to_json()[:-9])
    fresh = load_file(path, cache=True)
    assert fresh.meta.damage
    assert fresh.meta.window_ns == (500, 3_000_500)
    assert fresh.meta.devices[0].compute_capability == (9, 0)
    assert_same(load_file(path, cache=True), fresh, but=())
    assert len(reads) == 1


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_each_lane_comes_back_with_all_its_rows_however_few(rows: int, tmp_path: Path, reads: list[Any]) -> None:
    """One event of a kind is as good as many; a lane without any stays empty."""
    built = TraceBuilder(profile_memory=1, with_stack=1)
    built.step(1, 0, 1_000)
    for row in range(rows):
        built.kernel(100 * row, 50, row + 1)
        built.memory(100 * row, 512)
        built.python("train.py(3): step", 100 * row, 50, python_id=row + 1)
    path = built.write(tmp_path / "few.json")
    fresh, kept = load_file(path, cache=True), load_file(path, cache=True)
    assert len(reads) == 1
    assert [len(lane) for lane in (kept.cpu, kept.gpu, kept.memory, kept.python)] == [1, rows, rows, rows]
    assert_same(kept, fresh, but=())
