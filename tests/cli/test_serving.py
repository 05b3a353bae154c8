"""The server behind `open`: one file, once, to one page, from this machine alone."""

import http.client
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from traceanalyzer.cli import file_server
from traceanalyzer.cli.file_server import OneFile, user_of
from traceanalyzer.render.perfetto.archive import ORIGIN


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OneFile]:
    """A server of three bytes on any port."""
    with OneFile(ORIGIN, port=0) as made:
        file = tmp_path / "trace.zip"
        file.write_bytes(b"zip")
        made.give(file)
        yield made


def asked(server: OneFile, method: str = "GET", path: str | None = None, **headers: str) -> http.client.HTTPResponse:
    """The answer to one request."""
    connection = http.client.HTTPConnection(server.host, timeout=10)
    given = {"Origin": ORIGIN} | headers
    connection.request(method, server.path if path is None else path, headers={k: v for k, v in given.items() if v})
    return connection.getresponse()


def test_the_file_goes_to_the_viewer_once(server: OneFile) -> None:
    answer = asked(server)
    assert (answer.status, answer.read()) == (200, b"zip")
    assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert answer.headers["Vary"] == "Origin"
    assert answer.headers["Content-Length"] == "3"
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Cache-Control"] == "no-store"
    assert server.served.wait(10)
    assert asked(server).status == 404


def test_the_viewer_may_add_what_it_likes_behind_the_path(server: OneFile) -> None:
    assert asked(server, "OPTIONS", f"{server.path}?a=b").status == 204
    assert asked(server, path=f"{server.path}?a=b").read() == b"zip"
    assert server.served.wait(10)


def test_before_a_file_is_given_there_is_none() -> None:
    with OneFile(ORIGIN, port=0) as made:
        assert made.path == ""
        for path in ("", "/", "//"):
            assert asked(made, path=path or "/").status == 404
        assert not made.served.is_set()
    with socket.create_server(("127.0.0.1", int(made.host.partition(":")[2]))):
        pass  # the port is free again


def test_a_page_that_was_closed_may_come_again(
    server: OneFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "large.zip"
    file.write_bytes(bytes(16 << 20))
    server.give(file)
    with socket.create_connection(("127.0.0.1", int(server.host.partition(":")[2]))) as page:
        page.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        asking = f"GET {server.path} HTTP/1.1\r\nHost: {server.host}\r\nOrigin: {ORIGIN}\r\n\r\n"
        page.sendall(asking.encode())
        assert page.recv(12).startswith(b"HTTP/1.0 200")
    assert not server.served.wait(0.5)
    assert len(asked(server).read()) == 16 << 20
    assert server.served.wait(10)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": "http://ui.perfetto.dev"},
        {"Host": "rebound.example:9001"},
    ],
    ids=str,
)
def test_nobody_else_gets_it(server: OneFile, headers: dict[str, str]) -> None:
    answer = asked(server, **headers)
    assert (answer.status, answer.read()) == (404, b"")
    assert answer.headers["Content-Length"] == "0"
    assert asked(server, "OPTIONS", **headers).status == 404
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert not server.served.is_set()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no other system tells whose a connection is")
def test_a_program_of_another_user_gets_nothing(server: OneFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read the whole address on the browser's command line, and sends what the viewer would."""
    server.user = os.getuid()
    monkeypatch.setattr(file_server, "user_of", lambda *_: os.getuid() + 1)
    assert asked(server).status == 404
    assert not server.served.is_set()
    monkeypatch.undo()
    assert asked(server).read() == b"zip"


def test_whose_a_connection_is_stands_in_the_table_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ends have a row; that of the program that connected counts, not that of the server."""
    (table := tmp_path / "tcp").write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:2329 0100007F:D266 01 00000000:00000000 00:00000000 00000000  1000        0 18138 1\n"
        "   1: 0100007F:D266 0100007F:2329 01 00000000:00000000 00:00000000 00000000  1007        0 18137 2\n"
    )
    monkeypatch.setattr(file_server, "_CONNECTIONS", table)
    monkeypatch.setattr(sys, "byteorder", "little")
    assert user_of(("127.0.0.1", 53862), ("127.0.0.1", 9001)) == 1007
    assert user_of(("127.0.0.1", 53863), ("127.0.0.1", 9001)) is None
    monkeypatch.setattr(file_server, "_CONNECTIONS", tmp_path / "none")
    assert user_of(("127.0.0.1", 53862), ("127.0.0.1", 9001)) is None


@pytest.mark.parametrize("path", ["/", "/trace.zip", "/status", "/../trace.zip", "//etc/passwd"])
def test_nothing_else_is_there(server: OneFile, path: str) -> None:
    assert asked(server, path=path).status == 404
    assert not server.served.is_set()


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE"])
def test_nothing_else_is_answered(server: OneFile, method: str) -> None:
    """The viewer posts to /status to learn whether a trace processor runs here."""
    assert asked(server, method).status == 404
    assert asked(server, "POST", "/status").status == 404


def test_browsers_ask_before_they_fetch_from_this_machine(server: OneFile) -> None:
    answer = asked(server, "OPTIONS", **{"Access-Control-Request-Private-Network": "true"})
    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
    assert answer.headers["Access-Control-Allow-Methods"] == "GET"
    assert answer.headers["Vary"] == "Origin"
    assert asked(server, "OPTIONS", Origin="https://evil.example").status == 404
    assert not server.served.is_set()


def test_paths_cannot_be_guessed(tmp_path: Path) -> None:
    paths = set()
    for _ in range(3):
        with OneFile(ORIGIN, port=0) as one:
            one.give(tmp_path / "trace.zip")
            paths.add(one.path)
    assert len(paths) == 3
    assert all(len(path) > len("/trace.zip/") + 30 for path in paths)


def test_it_listens_on_this_machine_alone(server: OneFile) -> None:
    assert server.host.startswith("127.0.0.1:")


def test_parts_of_the_viewer_and_nothing_else_are_served(tmp_path: Path) -> None:
    (pages := tmp_path / "pages").mkdir()
    (pages / "index.html").write_text("<p>")
    (pages / "engine.js").write_text("1")
    (pages / "a b").mkdir()
    (pages / "a b" / "part.wasm2").write_bytes(b"2")
    (tmp_path / "link.js").write_text("3")
    (pages / "link.js").symlink_to(tmp_path / "link.js")
    (file := tmp_path / "trace.zip").write_bytes(b"zip")
    with OneFile(None, port=0, viewer=pages) as made:
        made.give(file)
        first = asked(made, path="/", Origin="")
        assert (first.read(), first.headers["Content-Type"]) == (b"<p>", "text/html")
        assert asked(made, path="/engine.js?v=1", Origin="").read() == b"1"
        assert asked(made, path="/?local_cache_key", Origin="").read() == b"<p>"
        begun = made.asked_s
        part = asked(made, path="/a%20b/part.wasm2?v=1", Origin="")
        assert (part.read(), part.headers["Content-Type"]) == (b"2", "application/octet-stream")
        assert part.headers["Content-Length"] == "1"
        assert made.asked_s > begun
        for path in ("/a%20b", "/link.js", "/../trace.zip", "/%2e%2e/trace.zip", "//etc/passwd", "/a%00b", "/none"):
            assert asked(made, path=path, Origin="").status == 404
        assert asked(made, path="/", Origin="", Host="rebound.example:9001").status == 404
        assert asked(made, Origin="https://evil.example").status == 404
        answer = asked(made, path=f"{made.path}?a=b", Origin="")
        assert answer.read() == b"zip"
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_viewer_folder_may_be_a_link_but_not_escape(tmp_path: Path) -> None:
    """As packages are in some stores; a link from page to page is one of its parts."""
    (pages := tmp_path / "store").mkdir()
    (pages / "index.html").write_text("<p>")
    (pages / "v1").mkdir()
    (pages / "v1" / "engine.js").write_text("1")
    (pages / "current").symlink_to(pages / "v1")
    (tmp_path / "viewer").symlink_to(pages)
    (tmp_path / "store.js").write_text("beside")
    with OneFile(None, port=0, viewer=tmp_path / "viewer") as made:
        for path, content in (("/", b"<p>"), ("/current/engine.js", b"1"), ("//v1/engine.js", b"1")):
            answer = asked(made, path=path, Origin="")
            assert (answer.status, answer.read()) == (200, content)
        for path in ("/../store.js", "/v1", "/v1/none.js"):
            answer = asked(made, path=path, Origin="")
            assert (answer.status, answer.headers["Content-Length"]) == (404, "0")
        assert not made.served.is_set()


def test_the_port_is_the_one_that_the_viewer_allows() -> None:
    assert (file_server.HOST, file_server.PORT) == ("127.0.0.1", 9001)
