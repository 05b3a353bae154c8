"""Long names cut so that two that differ still do."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.model.short_names import plain_kernel, short_kernel
from traceanalyzer.render.html.markup import said
from traceanalyzer.render.words.escape import shortened

_HEAD, _BESIDE = 24, 10  # characters kept of the beginning, and before where two names part


def told_apart(names: Sequence[str], longest: int) -> list[str]:
    """Each name in at most `longest` characters; those that would look alike with the part in which they differ."""
    shown = [shortened(name, longest) for name in names]
    alike: dict[str, set[str]] = {}
    for text, name in zip(shown, names, strict=True):
        alike.setdefault(text, set()).add(name)
    return [
        said(text if len(alike[text]) == 1 else _apart(name, alike[text], longest))
        for text, name in zip(shown, names, strict=True)
    ]


def kernel_names(names: Sequence[str], longest: int) -> list[str]:
    """Kernels without namespaces and template arguments, as findings name them; those alike with what differs."""
    shown = [short_kernel(name) for name in names]
    known: dict[str, set[str]] = {}
    for text, name in zip(shown, names, strict=True):
        known.setdefault(text, set()).add(name)
    full = told_apart([plain_kernel(name) for name in names], longest)
    pairs = zip(shown, full, strict=True)
    return [said(text) if len(known[text]) == 1 else whole for text, whole in pairs]


def _apart(name: str, others: set[str], longest: int) -> str:
    """The beginning of a name, and what is left of it where the others part from it; whole where that is no shorter."""
    parted = max(_common(name, other) for other in others if other != name)
    begin = max(parted - _BESIDE, _HEAD)
    cut = f"{name[:_HEAD]}…{name[begin : begin + longest - _HEAD - 1]}"
    return cut if begin > _HEAD + 1 else name


def _common(one: str, other: str) -> int:
    """Length of what both begin with."""
    parted = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(parted, min(len(one), len(other)))
