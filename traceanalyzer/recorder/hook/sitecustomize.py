"""Put on PYTHONPATH by `traceanalyzer record`: python runs it at start, and it waits until the program executes torch.

Only the standard library is used here, and nothing happens in a process that never imports torch. A sitecustomize of
the environment that this file hides is run as it would have been.
"""

from __future__ import annotations

import _thread
import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))
_RECORDER = "traceanalyzer_recorder"


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as everybody does, as often as anything looks for it, and starts the recorder once it has run."""

    def __init__(self) -> None:
        self._looking: set[int] = set()  # threads, so that the search does not find itself

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        thread = _thread.get_ident()
        if name != "torch" or thread in self._looking:
            return None
        self._looking.add(thread)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.discard(thread)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    _start()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _start() -> None:
    try:
        _load("__init__", _RECORDER, package=True)
        _load("program", f"{_RECORDER}.program").start_from_environment()
    except Exception as error:  # the program of the user comes first, whatever happens to its recording
        print(f"traceanalyzer record: nothing is recorded: {error}", file=sys.stderr)


def _load(file: str, name: str, *, package: bool = False) -> ModuleType:
    """A module of the recorder by its path: the program's interpreter need not have traceanalyzer installed."""
    folder = os.path.dirname(_HERE)
    found = [folder] if package else None
    path = os.path.join(folder, f"{file}.py")
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=found)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _end() -> None:
    program = sys.modules.get(f"{_RECORDER}.program")
    if program is not None:
        program.end_process()


def _run_the_hidden_one() -> None:
    """The environment's own sitecustomize, where there is one."""
    elsewhere = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


# The command's folder is gone once it has ended, and what still starts is not recorded.
if os.environ.get("TRACEANALYZER_RECORD") and os.path.isdir(os.environ.get("TRACEANALYZER_RECORD_NOTES", "/")):
    sys.meta_path.insert(0, _AfterTorch())
    atexit.register(_end)  # the first to be registered is the last to be called
_run_the_hidden_one()
