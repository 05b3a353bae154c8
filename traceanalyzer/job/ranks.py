"""The ranks of a job, wherever their traces are: all are asked the same, and what they answer is small."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable

T = TypeVar("T")
Rank = int | None  # None: a trace alone that declares none
R = TypeVar("R", bound=Rank)

Ask = Callable[[Analysis, Any, Any], T]
"""(a rank's analysis, what is given to this rank, what is given to all) -> what the pass over ranks needs of it.

A function of a module, and all three can be pickled: it may run in another process. It may give its analysis what the
others know (`Analysis.provide`), so that the order of asks counts.
"""


class Ranks(ABC):
    """
    Attributes:
        all: the ranks, as the report calls them, in its order.
    """

    all: tuple[Rank, ...]

    @abstractmethod
    def each(self, ask: Ask[T], given: Mapping[R, Any], shared: Any = None) -> dict[R, T]:
        """What each rank in `given` answers, in that order; without those that raise `Unavailable`."""


class Here(Ranks):
    """Ranks whose analyses are in this process."""

    def __init__(self, analyses: Mapping[Rank, Analysis]) -> None:
        self.analyses = analyses
        self.all = tuple(analyses)

    def each(self, ask: Ask[T], given: Mapping[R, Any], shared: Any = None) -> dict[R, T]:
        answers: dict[R, T] = {}
        for rank, own in given.items():
            with suppress(Unavailable):
                answers[rank] = ask(self.analyses[rank], own, shared)
        return answers
