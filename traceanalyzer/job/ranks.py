"""The ranks of a job, wherever their traces are: small answers to questions that all ranks get."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from traceanalyzer.job.runs import PAIR, CollectiveRuns, is_pair
from traceanalyzer.model.analysis import Analysis, GivenByJob
from traceanalyzer.model.arrays import Floats, pick
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.report import Clock
from traceanalyzer.read.load import load_file
from traceanalyzer.timeline.collective_waits import CollectiveWaits


@dataclass(frozen=True, slots=True)
class JobView(GivenByJob):
    """By rank: its collectives, what it waited in those that others have, too, its clock, and its file's base time."""

    runs: Mapping[int, CollectiveRuns]
    waits: Mapping[int, CollectiveWaits]
    clocks: Mapping[int, Clock]
    base_ns: Mapping[int, int]

    @property
    def pipelined(self) -> bool:
        """Whether ranks send to each other, as stages of a pipeline do: these run other programs."""
        return any(is_pair(group) for run in self.runs.values() for group in set(run.group[run.what == PAIR]))

    def held_up_ns(self) -> dict[int, Floats]:
        """Rank -> what the others wait for it in each of its collectives, on average; float64, as its waits."""
        size = 1 + max((int(wait.number.max(initial=-1)) for wait in self.waits.values()), default=-1)
        waited, ranks = np.zeros(size), np.zeros(size, np.int64)
        last = np.full(size, -1, np.int64)
        for wait in self.waits.values():
            np.add.at(waited, wait.number, wait.waiting_ns)
            np.add.at(ranks, wait.number, 1)
            last[wait.number] = wait.last
        others = waited / np.maximum(ranks - 1, 1)
        return {
            rank: np.where(pick(last, wait.number) == rank, others[wait.number], 0.0)
            for rank, wait in self.waits.items()
        }


T = TypeVar("T")
Rank = int | None  # None: a trace alone that declares none
R = TypeVar("R", bound=Rank)

Ask = Callable[[Analysis, Any, Any], T]
"""(a rank's analysis, what is given to this rank, what is given to all) -> what the pass over ranks needs of it.

A function of a module, and all three can be pickled: it may run in another process. It may give its analysis what the
others know (`Analysis.provide`), so that the order of asks counts.
"""


def give(analysis: Analysis, known: Any, _: None) -> None:
    """Let a rank's analysis know what only the job gives."""
    analysis.provide(known)


class Ranks(ABC):
    """
    Attributes:
        all: the ranks, as the report calls them, in its order.
        iterations: name -> files of each iteration, of which one has these ranks; empty where there is but one.
    """

    all: tuple[Rank, ...]
    iterations: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    @abstractmethod
    def each(self, ask: Ask[T], given: Mapping[R, Any], shared: Any = None) -> dict[R, T]:
        """What each rank in `given` answers, in that order; without those that raise `Unavailable`."""

    @abstractmethod
    def once(self, ask: Ask[T], files: Sequence[str], shared: Any = None) -> dict[str, T | Exception]:
        """What each of these files answers, or the reason why not: files that are read for this alone and let go."""


class Here(Ranks):
    """Ranks whose analyses are in this process."""

    def __init__(
        self, analyses: Mapping[Rank, Analysis], iterations: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self.analyses = analyses
        self.all = tuple(analyses)
        self.iterations = iterations or {}

    def each(self, ask: Ask[T], given: Mapping[R, Any], shared: Any = None) -> dict[R, T]:
        answers: dict[R, T] = {}
        for rank, own in given.items():
            with suppress(Unavailable):
                answers[rank] = ask(self.analyses[rank], own, shared)
        return answers

    def once(self, ask: Ask[T], files: Sequence[str], shared: Any = None) -> dict[str, T | Exception]:
        answers: dict[str, T | Exception] = {}
        for file in files:
            try:
                answers[file] = ask(Analysis(load_file(file)), None, shared)
            except Exception as error:  # whatever is wrong with one file costs no other one
                answers[file] = error
        return answers
