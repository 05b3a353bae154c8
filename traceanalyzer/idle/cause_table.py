"""The causes of idle time, in the order in which they are asked, and their words: what `causes.toml` has."""

import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from traceanalyzer.idle import cause_conditions
from traceanalyzer.idle.cause_conditions import Verdict
from traceanalyzer.idle.gap_evidence import Evidence
from traceanalyzer.idle.gap_segments import Proof
from traceanalyzer.model.finding import Confidence

Tested = TypeVar("Tested")


class CauseText(NamedTuple):
    """How people call a cause; the fields are explained in `causes.toml`."""

    name: str
    idle: str
    happened: str
    advice: str


class Cause(NamedTuple, Generic[Tested]):
    """A cause of idle time.

    Attributes:
        cause: kebab-case; several rows of the tables may name the same.
        group: whose time it is, in a few words.
        test: gives the proofs for it, or for which gaps it holds: then for all that remains of them.
    """

    cause: str
    group: str
    test: Callable[[Evidence], Tested]
    sure: Confidence
    holds: str
    why: str


def _row(sure: str, test: str = "", activity: str = "", **texts: str) -> Cause[Any]:
    active = partial(cause_conditions.while_active, activity=activity)
    return Cause(test=getattr(cause_conditions, test) if test else active, sure=Confidence(sure), **texts)


_CAUSES = tomllib.loads(Path(__file__).with_name("causes.toml").read_text(encoding="utf-8"))
PROVEN: tuple[Cause[Iterator[Proof]], ...] = tuple(_row(**row) for row in _CAUSES["proven"])
JUDGED: tuple[Cause[Verdict], ...] = tuple(_row(**row) for row in _CAUSES["judged"])
TABLE: tuple[Cause[Any], ...] = (*PROVEN, *JUDGED)
CAUSES: tuple[str, ...] = tuple(dict.fromkeys(row.cause for row in TABLE))
GROUPS: dict[str, str] = {row.cause: row.group for row in TABLE}
RECORDING = "the recording"

TEXTS = {cause: CauseText(**texts) for cause, texts in _CAUSES["texts"].items()}
ELSE = TEXTS.pop("else")

# Causes that say of themselves why: whether they come back, or in which step they are, adds nothing.
SAYS_WHY = (
    *("not-recorded", "graph-capture", "profiler-overhead", "in-graph"),
    *("unlinked", "tail", "waiting", "unknown"),
)
# Causes of a gap that goes by between two ops for the most part, without and with stacks.
BETWEEN_OPS = ("host-code", "python")
# Causes that no change of the program's code takes away.
NOT_THE_CODE = (
    *("not-recorded", "graph-capture", "profiler-overhead", "launch-latency"),
    *("in-graph", "unlinked", "tail", "start"),
)
