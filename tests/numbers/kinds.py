"""Which documents of which traces have their numbers kept.

`python -m tests.numbers.kinds KIND NAME` prints the numbers of one: before and after a change they can be compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tests.numbers import documents as of
from tests.numbers.columns import columns_of
from tests.numbers.documents import one_of
from tests.numbers.functions import outcomes
from tests.numbers.programs import (
    BROKEN,
    BUILT,
    CHANCES,
    CHANGED,
    CHANGES,
    COPIED,
    COPIED_CHANGES,
    COPIED_JOBS,
    JOBS,
    LAYOUTS,
)
from tests.support.fixtures import PROGRAMS, TRACES, name_of
from traceanalyzer.model.errors import TraceAnalyzerError, Unavailable

RECORDED = [name_of(path) for path in TRACES]
BAD = one_of(20, [name for name in RECORDED if name.endswith("/bad")])
# Pages take longer than all else.
DRAWN = [*one_of(40, RECORDED), *one_of(16, BUILT), *one_of(8, CHANCES), *one_of(2, [*JOBS])]
OF_COPIES = "copied_"
"""What the kinds of changed copies begin with: they come with the slow tests."""

KINDS: Mapping[str, tuple[Callable[[str], Any], Sequence[str]]] = {
    "diagnosed": (of.diagnosed, [*RECORDED, *BUILT, *CHANCES, *JOBS]),
    "programs": (of.told, list(map(name_of, PROGRAMS))),
    "window": (of.window, [*one_of(24, RECORDED), *one_of(5, CHANCES)]),
    "texts": (of.texts, [*one_of(2, RECORDED), *one_of(2, BUILT), *one_of(2, CHANCES), *JOBS]),
    "ops": (of.ops, [*one_of(3, RECORDED), *one_of(2, BUILT), *CHANCES]),
    "ops_texts": (of.ops_texts, [*one_of(12, RECORDED), *one_of(12, BUILT), *one_of(12, CHANCES)]),
    "memory": (of.memory, [*one_of(2, RECORDED), *CHANCES]),
    "facts": (of.facts, [*one_of(2, RECORDED), *one_of(2, BUILT), *CHANCES]),
    "table": (of.table, [*one_of(6, RECORDED), *one_of(2, CHANCES)]),
    "frames": (of.frames, [*one_of(6, RECORDED), *one_of(2, CHANCES)]),
    "results": (of.results, [*one_of(20, RECORDED), *one_of(8, CHANCES)]),
    "read": (of.read, [*CHANGED, *BROKEN, *LAYOUTS, *one_of(6, CHANCES)]),
    "read_diagnosed": (of.diagnosed, [*one_of(3, CHANGED), LAYOUTS[0]]),
    "flames": (of.flames, [*one_of(8, RECORDED), *one_of(4, CHANCES)]),
    "page": (of.page, DRAWN),
    "overlay": (of.overlay, DRAWN),
    "compared": (of.compared, [*CHANGES, *BAD]),
    "collectives": (of.collectives, [*JOBS]),
    "functions": (lambda _: outcomes(), ["all"]),
    f"{OF_COPIES}diagnosed": (of.diagnosed, [*COPIED, *COPIED_JOBS]),
    f"{OF_COPIES}views": (of.views, COPIED),
    f"{OF_COPIES}texts": (of.texts, [*one_of(4, COPIED), *COPIED_JOBS]),
    f"{OF_COPIES}drawn": (of.drawn, [*one_of(10, COPIED), *one_of(3, COPIED_JOBS)]),
    f"{OF_COPIES}compared": (of.compared, COPIED_CHANGES),
    f"{OF_COPIES}collectives": (of.collectives, COPIED_JOBS),
}


def columns(kind: str, names: Iterable[str]) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """(name, numbers) of every trace of which there is such a document."""
    for name in names:
        with suppress(TraceAnalyzerError, Unavailable):
            yield name, columns_of(KINDS[kind][0](name))


if __name__ == "__main__":
    for column, values in columns_of(KINDS[sys.argv[1]][0](sys.argv[2])).items():
        print(f"{column}: {', '.join(values)}")
