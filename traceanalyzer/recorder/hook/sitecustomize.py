"""Put on PYTHONPATH by `traceanalyzer record`: python runs it at start, and it waits until the program imports torch.

Only the standard library is used here, and nothing happens in a process that never imports torch. A sitecustomize of
the environment that this file hides is run as it would have been.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))
_RECORDER = "traceanalyzer_recorder"


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as everybody does, and starts the recorder once it is imported."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
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
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, f"{file}.py"), submodule_search_locations=found
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _run_the_hidden_one() -> None:
    """The environment's own sitecustomize, where there is one."""
    elsewhere = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if os.environ.get("TRACEANALYZER_RECORD"):
    sys.meta_path.insert(0, _AfterTorch())
_run_the_hidden_one()
