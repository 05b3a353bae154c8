"""Work that only one rank runs: ranks of one job run one program, except stages of a pipeline."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from traceanalyzer.model.analysis import GivenByJob
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.job_ranks import hashed_names

Hashes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OtherProgram(GivenByJob):
    """Names of ops and kernels that this rank has, and less than half of the others."""

    names: tuple[str, ...]
    others: int
    missing: ClassVar[str] = "needs the traces of several ranks that run the same program (stages of a pipeline do not)"

    @classmethod
    def of(cls, trace: Trace, rare: Hashes, others: int) -> Self:
        known = hashed_names(trace)
        return cls(tuple(sorted(known[one] for one in rare if one in known)), others)


def rare_in(programs: Mapping[int, Hashes]) -> dict[int, Hashes]:
    """Rank -> those of its names that less than half of the other ranks have."""
    having = Counter(name for names in programs.values() for name in names)
    others = len(programs) - 1
    return {rank: tuple(name for name in names if 2 * (having[name] - 1) < others) for rank, names in programs.items()}
