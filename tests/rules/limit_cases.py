"""Where a program decides a limit of a rule: `python -m tests.rules.limit_cases` adds what limit_cases.json lacks.

Recorded fixtures are looked at, and what limit_programs.py builds. A trace has one value of what a limit is held
against. With the limit just below that value the rule says one thing, just above it another: both sides of the
decision, found by halving. A limit that is no threshold but a factor of a prediction says another thing with every
value; the pair then begins at the limit itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.rules.limit_programs import PROGRAMS, built
from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES, TRACES, name_of
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.registry import Rule, all_rules

TABLE = Path(__file__).with_suffix(".json")
_FACTORS = (1.001, 1.1, 1.5, 2, 4, 10, 100, 1_000, 1e6)
_APART = 1e-3  # of a limit that is no whole number: how near to the decision the two sides come
_UNSAID = {"related", "occurrences", "lost", "fixed_elsewhere", "repeated_rows"}
Said = tuple[int, int, str]
"""(findings, occurrences, digest of what they lost and what their fixes change)"""


def with_limit(rule: Rule, name: str, value: float) -> Rule:
    """The rule with another limit."""
    return replace(rule, limits=replace(rule.limits, **{name: value}))


def said(rule: Rule, analysis: Analysis, *, sentences: bool = True) -> Said:
    """What the rule finds, with its sentences or without."""
    try:
        hits = list(rule.hits(analysis))
    except Unavailable as why:
        return 0, 0, type(why).__name__
    return said_by(hits, sentences=sentences)


def said_by(hits: Sequence[Hits], *, sentences: bool) -> Said:
    """What these hits say."""
    whole = hashlib.sha256()
    for part in (part for one in hits for part in _parts_of_hits(one, sentences)):
        whole.update(part)
    return len(hits), sum(len(one.occurrences) for one in hits), whole.hexdigest()[:8]


def _parts_of_hits(hits: Hits, sentences: bool) -> Iterator[bytes]:
    yield hits.occurrences.start_ns.tobytes()
    yield from _parts(hits.losses())
    kept = {one.name: getattr(hits, one.name) for one in fields(hits) if one.name not in _UNSAID}
    if not sentences:  # `where` is a sentence's end, made of the shapes and lines beside it
        evidence = {name: value for name, value in hits.evidence.items() if name != "where"}
        kept |= {"message": "", "advice": "", "evidence": evidence}
    yield from _parts(list(kept.values()))


def _parts(value: Any) -> Iterator[bytes]:
    """Bytes of every number and text in a value."""
    if isinstance(value, np.ndarray):
        yield repr(value.tolist()).encode()
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        yield from _parts([getattr(value, one.name) for one in fields(value)])
    elif isinstance(value, Mapping):
        yield from _parts([*value.items()])
    elif isinstance(value, list | tuple | set | frozenset):
        for one in sorted(value, key=repr) if isinstance(value, set | frozenset) else value:
            yield from _parts(one)
    elif hasattr(value, "rows") or hasattr(value, "entries"):
        yield np.asarray(getattr(value, "start_ns", ())).tobytes()
    else:
        yield repr(value).encode()


def decided(rule: Rule, name: str, analysis: Analysis) -> tuple[float, float] | None:
    """Two values of a limit, as near to each other as can be, with which the rule says different things."""
    now = getattr(rule.limits, name)
    usual = said(rule, analysis)
    for factor in _FACTORS:
        for other in (now * factor, now / factor):
            far = max(round(other), 0) if isinstance(now, int) else other
            if name.endswith("_share"):
                far = min(far, 1.0)
            if isinstance(now, int) and far == now:
                far = now + 1 if other > now else max(now - 1, 0)
            with suppress(ArithmeticError, ValueError, LookupError):
                if far != now and said(with_limit(rule, name, far), analysis) != usual:
                    return _halved(rule, name, analysis, now, far, usual)
    return None


def _halved(
    rule: Rule, name: str, analysis: Analysis, near: float, far: float, usual: Said
) -> tuple[float, float]:
    whole = isinstance(near, int)
    while abs(far - near) > (1 if whole else _APART * max(near, far)):
        middle = (near + far) // 2 if whole else (near + far) / 2
        if said(with_limit(rule, name, middle), analysis) == usual:
            near = middle
        else:
            far = middle
    return min(near, far), max(near, far)


def analysis_of(name: str) -> Analysis:
    """The fixture, or the built program, of this name."""
    return built(name) if name.startswith("built/") else analysed(FIXTURES / f"{name}.json.gz")


def _candidates(rule: Rule) -> Iterator[str]:
    """Those of the rule first, then all other fixtures."""
    recorded = sorted(map(name_of, TRACES))
    yield from (name for name in recorded if name.startswith(f"{rule.slug}/"))
    yield from (f"built/{rule.slug}/{number}" for number in range(len(PROGRAMS.get(rule.slug, ()))))
    yield from (name for name in recorded if not name.startswith(f"{rule.slug}/"))


def main() -> None:
    """Write the table; what is in it is kept, and limits that are missing are looked for in every program."""
    table: dict[str, Any] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    for rule in all_rules():
        names = [] if rule.limits is None else [one.name for one in fields(rule.limits)]
        for trace in _candidates(rule):
            missing = [name for name in names if f"{rule.slug}.{name}" not in table]
            analysis = analysis_of(trace) if missing else None
            for name in missing if analysis else ():
                if sides := decided(rule, name, analysis):
                    limit = getattr(rule.limits, name)
                    table[f"{rule.slug}.{name}"] = {"trace": trace, "limit": limit, "sides": sides}
    lines = [f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(table.items())]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
