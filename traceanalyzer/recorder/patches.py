"""Changes to the modules of a running program that can all be taken back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import wraps
from typing import Any

_ABSENT = object()
Call = Callable[..., object]


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
