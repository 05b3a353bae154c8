"""One file for one page: served once from this machine to Perfetto's viewer, and to nobody else.

The viewer may be served from here, too.
"""

import mimetypes
import secrets
import shutil
import socket
import sys
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self
from urllib.parse import unquote

from traceanalyzer.model.errors import TraceAnalyzerError

HOST, PORT = "127.0.0.1", 9001  # the only address without https that the viewer's content policy allows
_SILENT_S = 30  # a connection on which nothing is said
_POLL_S = 0.05  # how long it may take to notice that nobody is served any more
_CONNECTIONS = Path("/proc/net/tcp")  # which only Linux has


class OneFile(ThreadingHTTPServer):
    """Serves a file under a path that nobody can guess, until it was fetched.

    Args:
        origin: the only page that may fetch it; None for the viewer that is served from here.
        viewer: folder of the viewer's pages.
        user: the only one, besides root, whose programs may fetch it, None for all: a browser is started by a command
            line, where other users read the address.
    """

    def __init__(
        self, origin: str | None, port: int = PORT, viewer: Path | None = None, user: int | None = None
    ) -> None:
        self.origin, self.user, self.viewer = origin, user, viewer
        self.asked_s = time.monotonic()
        self.served = Event()
        self.file: Path | None = None
        self._token = secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            remedy = (
                "It is the only one that Perfetto's viewer may fetch from: end the program that listens there, such as "
                "another `traceanalyzer open` or `trace_processor --httpd`; or write a file with `traceanalyzer "
                "annotate` and open that."
            )
            raise TraceAnalyzerError(f"port {port} cannot be used: {error.strerror}", remedy=remedy) from error

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, args=(_POLL_S,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def give(self, file: Path) -> str:
        """Serve this file from now on; its address."""
        self.file = file
        return f"http://{self.host}{self.path}"

    @property
    def path(self) -> str:
        return f"/{self._token}/{self.file.name}" if self.file else ""

    @property
    def host(self) -> str:
        """What a browser calls this server; another name would be a page that rebinds its own."""
        return f"{HOST}:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: OneFile
    timeout = _SILENT_S

    def do_GET(self) -> None:
        """The file, once, to the right page; or a part of the viewer."""
        one = self.server
        one.asked_s = time.monotonic()
        if one.viewer is not None and self.path.partition("?")[0] != one.path:
            self._part(one.viewer.resolve())
        elif not self._admitted() or one.file is None or one.served.is_set():
            self._refuse()
        elif self._send(one.file, {"Content-Type": "application/octet-stream", "Cache-Control": "no-store"}):
            one.served.set()

    def _part(self, folder: Path) -> None:
        name = unquote(self.path.partition("?")[0]).lstrip("/") or "index.html"
        wanted = (folder / name).resolve() if "\0" not in name else folder
        if self.headers.get("Host") != self.server.host or not wanted.is_relative_to(folder) or not wanted.is_file():
            self._refuse()
        else:
            self._send(wanted, {"Content-Type": mimetypes.guess_type(wanted.name)[0] or "application/octet-stream"})

    def _send(self, file: Path, headers: dict[str, str]) -> bool:
        """Whether all of it was sent: a page that was closed may come again."""
        with file.open("rb") as content:
            self.send_response(HTTPStatus.OK)
            self._allow()
            for name, value in (headers | {"Content-Length": str(file.stat().st_size)}).items():
                self.send_header(name, value)
            try:
                self.end_headers()
                shutil.copyfileobj(content, self.wfile)
            except OSError:
                return False
        return True

    def do_OPTIONS(self) -> None:
        """Browsers ask before a page of the network may fetch from this machine."""
        if not self._admitted():
            self._refuse()
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._allow()
        self.send_header("Access-Control-Allow-Methods", "GET")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def do_POST(self) -> None:
        """The viewer asks here whether a trace processor runs; there is none."""
        self._refuse()

    do_HEAD = do_PUT = do_DELETE = do_POST

    def _admitted(self) -> bool:
        asked = (self.headers.get("Origin"), self.headers.get("Host"))
        one = self.server
        wanted = secrets.compare_digest(self.path.partition("?")[0].encode(), one.path.encode())
        trusted = one.user is None or user_of(self.client_address, one.server_address) in (None, 0, one.user)
        return wanted and trusted and asked == (one.origin, one.host)

    def _allow(self) -> None:
        if self.server.origin is not None:
            self.send_header("Access-Control-Allow-Origin", self.server.origin)
            self.send_header("Vary", "Origin")

    def _refuse(self) -> None:
        self.send_response(HTTPStatus.NOT_FOUND)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests are nobody's business."""


def user_of(client: Any, server: Any) -> int | None:
    """The user whose program connected from one address and port to another; None where no table has it."""

    def encoded(address: str, port: int) -> str:
        return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{port:04X}"

    with suppress(OSError):
        for row in _CONNECTIONS.read_text().splitlines():
            _, *ends, _, _, _, _, user = row.split()[:8]
            if ends == [encoded(*client), encoded(*server)]:
                return int(user)
    return None
