"""A process that has imported torch once and forks itself for each program: `python preloaded.py SOCKET`.

`python preloaded.py SOCKET train.py` is such a program as seen from outside: its streams, its folder, its environment
and how it ends are those of this process. In the fork `import torch` imports what is there, past whatever hooks into
imports of it, and python's start is done by hand: the path, and a sitecustomize on it.
"""

import atexit
import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import runpy
import shutil
import signal
import socket
import sys
import threading
import types
from typing import Any

_IDLE_S = 2.0


class _Imported(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch as it was imported before the fork."""

    def __init__(self, torch: types.ModuleType) -> None:
        self.torch = torch

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name == "torch" else None

    def create_module(self, spec: object) -> types.ModuleType:
        return self.torch

    def exec_module(self, module: types.ModuleType) -> None:
        """It was executed."""


def ask(address: str, words: list[str]) -> None:
    """Have a program run with the streams of this process, and end as it does."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(address)
        text = json.dumps({"words": words, "folder": os.getcwd(), "environ": dict(os.environ)}).encode()
        socket.send_fds(asked, [len(text).to_bytes(8, "little")], [0, 1, 2])
        asked.sendall(text)
        status = int.from_bytes(_received(asked, 4), "little")
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def _received(given: socket.socket, size: int) -> bytes:
    text = b""
    while len(text) < size:
        text += given.recv(size - len(text)) or sys.exit("the other side is gone")
    return text


def serve(address: str) -> None:
    """Fork for each program, until the process that began this one is gone."""
    import torch

    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        server.settimeout(_IDLE_S)
        while os.getppid() == parent:
            with contextlib.suppress(TimeoutError):
                _answer(server.accept()[0], torch)
    shutil.rmtree(os.path.dirname(address), ignore_errors=True)


def _answer(given: socket.socket, torch: types.ModuleType) -> None:
    with given:
        given.setblocking(True)
        size, streams, _, _ = socket.recv_fds(given, 8, 3)
        asked = json.loads(_received(given, int.from_bytes(size, "little")))
        child = os.fork()
        if child == 0:
            _become(asked, streams, torch)
        for one in streams:
            os.close(one)
        given.sendall(os.waitpid(child, 0)[1].to_bytes(4, "little"))


def _become(asked: dict[str, Any], streams: list[int], torch: types.ModuleType) -> None:
    """The program, from its start to its end."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    sys.argv = asked["words"]
    sys.path[:1] = [asked["folder"], *asked["environ"]["PYTHONPATH"].split(os.pathsep)]
    sys.meta_path.insert(0, _Imported(torch))
    del sys.modules["torch"]
    sys.modules.pop("sitecustomize", None)
    code = 0
    try:
        import sitecustomize  # noqa: F401

        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[2:]:
        ask(sys.argv[1], sys.argv[2:])
    serve(sys.argv[1])
