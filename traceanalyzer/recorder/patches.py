"""Changes to a running program that can all be taken back, and the calls of one of its functions."""

import contextlib
import sys
import threading
from collections.abc import Callable
from functools import reduce, wraps
from types import FrameType
from typing import Any

_ABSENT = object()
Call = Callable[..., object]
Returned = Callable[[], None]


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


class Patches:
    """Replaced attributes and registered hooks of a program, and how to restore each."""

    def __init__(self) -> None:
        self._restore: list[Callable[[], object]] = []

    def replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Set `owner.name` to `wrap` of what it is now; an owner without the attribute stays as it is."""
        original = vars(owner).get(name, getattr(owner, name, _ABSENT))
        if original is _ABSENT:
            return
        inherited = name not in vars(owner)
        changed = wrap(original)
        setattr(owner, name, changed)

        def restore() -> None:
            # Another tool may have wrapped the wrapper since; its replacement is left in place.
            if vars(owner).get(name) is not changed:
                return
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

        self._restore.append(restore)

    def watch(self, owner: Any, name: str, *, before: Call = _nothing, after: Call = _nothing) -> None:
        """Call `before` with the arguments of each call of `owner.name`, and `after` with its result and these."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(original)
            def watched(*args: Any, **kwargs: Any) -> Any:
                before(*args, **kwargs)
                result = original(*args, **kwargs)
                after(result, *args, **kwargs)
                return result

            return watched

        self.replace(owner, name, wrap)

    def on_undo(self, restore: Callable[[], object]) -> None:
        """Call `restore` when the changes are taken back."""
        self._restore.append(restore)

    def undo(self) -> None:
        """Restore everything, last change first. A change that cannot be taken back does not stop the others."""
        while self._restore:
            with contextlib.suppress(Exception):
                self._restore.pop()()


def watch_calls(named: str, returned: Returned) -> Callable[[], None]:
    """Call `returned()` at every return of `pkg.module:function`; the result ends that.

    `__main__:function` is a function of the script itself.

    Raises ValueError: the name has no colon, or on Python 3.11 is of a function within a function.
    """
    where, colon, function = named.partition(":")
    if not colon:
        raise ValueError(f"--every-call-of {named}: give pkg.module:function")
    if hasattr(sys, "monitoring"):
        return _monitor(where, function, returned)
    if "<locals>" in function:
        problem = "before Python 3.12 name a function of a module or a class"
        raise ValueError(f"--every-call-of {named}: {problem}")
    return _look_for_first_call(where, function, returned)


def _monitor(where: str, function: str, returned: Returned) -> Callable[[], None]:
    """From Python 3.12 on: returns of other functions are reported once each, and cost nothing afterwards."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool, events = monitoring.PROFILER_ID, monitoring.events
    monitoring.use_tool_id(tool, "traceanalyzer record")

    def ended(code: Any, *_: Any) -> Any:
        if code.co_qualname != function or sys._getframe(1).f_globals.get("__name__") != where:
            return monitoring.DISABLE
        returned()
        return None

    monitoring.register_callback(tool, events.PY_RETURN, ended)
    monitoring.set_events(tool, events.PY_RETURN)

    def end() -> None:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, events.PY_RETURN, None)
        monitoring.free_tool_id(tool)

    return end


def _look_for_first_call(where: str, function: str, returned: Returned) -> Callable[[], None]:
    """On Python 3.11: all calls are looked at until the function's first one ends, and it is wrapped then."""
    found = False
    patches = Patches()

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal found
        if found:
            sys.setprofile(None)
            return
        code = frame.f_code
        if event != "return" or code.co_qualname != function or frame.f_globals.get("__name__") != where:
            return
        found = True
        sys.setprofile(None)
        threading.setprofile(None)
        with contextlib.suppress(AttributeError):  # the program deleted the name
            _wrap(where, function, returned, patches)
        returned()

    threading.setprofile(look)
    sys.setprofile(look)

    def end() -> None:
        nonlocal found
        if not found:
            found = True
            sys.setprofile(None)
            threading.setprofile(None)
        patches.undo()

    return end


def _wrap(where: str, function: str, returned: Returned, patches: Patches) -> None:
    """The function counts its returns, under its own name and in all modules that imported it."""
    *around, name = function.split(".")
    owner: Any = reduce(getattr, around, sys.modules[where])
    own = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
    original = own.__func__ if isinstance(own, staticmethod | classmethod) else own

    @wraps(original)
    def counted(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        returned()
        return result

    changed = type(own)(counted) if original is not own else counted
    patches.replace(owner, name, lambda _: changed)
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for other in [key for key, value in list(names.items()) if value is original]:
            patches.replace(module, other, lambda _: counted)
