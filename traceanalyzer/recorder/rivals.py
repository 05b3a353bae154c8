"""The program's other profilers: torch has room for one, and the program's has precedence."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from .patches import Patches


class Rivals:
    """Watches the profilers and execution traces that the program itself starts.

    Before a profiler starts it calls `starting`, which has to stop the recorder's, and before an observer `observing`.
    """

    def __init__(self, patches: Patches) -> None:
        self.active = self.seen = False
        self.traces: list[str] = []
        self.starting: Callable[[], None] = lambda: None
        self.observing: Callable[[], None] = lambda: None
        self._ours = self._exporting = False
        self._watch(patches)

    @contextmanager
    def recorder_acts(self) -> Iterator[None]:
        """Profilers that start or stop within are the recorder's."""
        before, self._ours = self._ours, True
        try:
            yield
        finally:
            self._ours = before

    def running(self) -> bool:
        """Whether a profiler of the program is prepared or records, whenever it was started."""
        from torch.autograd import profiler

        return self.active or bool(getattr(profiler, "_is_profiler_enabled", False))

    def _watch(self, patches: Patches) -> None:
        from torch.autograd import profiler as autograd
        from torch.profiler import profiler as kineto

        for name in ("_prepare_profiler", "_enable_profiler"):
            patches.replace(autograd, name, self._starts)
        patches.replace(autograd, "_disable_profiler", self._stops)
        patches.watch(kineto, "_add_execution_trace_observer", before=self._observes)
        patches.replace(autograd.profile, "export_chrome_trace", self._exports)
        patches.replace(kineto._KinetoProfile, "export_chrome_trace", self._exports)

    def _starts(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def start(*args: Any, **kwargs: Any) -> Any:
            if self._ours:
                return original(*args, **kwargs)
            if not self.active:
                self.active = self.seen = True
                self.starting()
            try:
                return original(*args, **kwargs)
            except BaseException:
                self.active = False
                raise

        return start

    def _stops(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def stop(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                if not self._ours:
                    self.active = False

        return stop

    def _observes(self, *_: Any) -> None:
        if not self._ours:
            self.observing()

    def _exports(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def export(profiler: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            inner, self._exporting = self._exporting, True
            try:
                result = original(profiler, path, *args, **kwargs)
            finally:
                self._exporting = inner
            if not self._ours and not inner:
                self.traces.append(os.path.abspath(os.fspath(path)))
            return result

        return export
