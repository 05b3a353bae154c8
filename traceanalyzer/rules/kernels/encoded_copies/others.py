"""Tensors that are no copies, and have as many entries."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.roofline.results import result_of
from traceanalyzer.tensors.signatures import Shape, Signature


class Others:
    """Tensors of as many entries as there are copies that come from elsewhere: what takes them is no copy's own."""

    def __init__(self, copies: int) -> None:
        self._copies, self._shapes, self._unknown = copies, set[Shape](), False

    def see(self, op: Signature, read: Sequence[Shape]) -> None:
        """An op that takes nothing of the network."""
        mine = any(one[:1] == (self._copies,) for one in read)
        self._shapes.update(one for one in read if one[:1] == (self._copies,))
        self._unknown = False if mine else self._unknown
        made = result_of(op)
        if made is not None and made[:1] == (self._copies,):
            self._shapes.add(made)
        elif mine and made is None:
            self._unknown = True

    def may_be(self, read: Sequence[Shape]) -> bool:
        """Whether one of several tensors may come from elsewhere."""
        return len(read) > 1 and (self._unknown or any(one in self._shapes for one in read))
