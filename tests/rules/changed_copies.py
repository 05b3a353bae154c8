"""What rules say of changed copies of the traces that tests build.

A test builds what shows a condition. In copies that are changed by chance (tests/numbers/variations.py) steps differ,
devices are two, inputs are missing, work touches: what the condition's neighbours are for. Where slow tests run, too,
each rule that a test of rules asks about a built trace is also asked about such copies, and what it yields is compared
with what it yielded when changed.json was written, as kept_sayings.py does with the traces themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from tests.numbers.variations import changed_copy
from tests.rules.limit_cases import said_by
from tests.support.trace_builder import load_bytes
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import TraceAnalyzerError, Unavailable
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.registry import Rule

PATH = Path(__file__).parent.parent / "snapshots/rules/changed.json"
COPIES = 16  # of a trace of which the rule says something
_OF_OTHERS = 3
MOST_BYTES = 1 << 20  # of a trace; larger ones show no more
HitsOf = Callable[[Rule, Analysis], Iterator[Hits]]
Said = dict[str, dict[str, str]]
"""Rule -> trace -> digest of what it yields for the copies; empty where it yields nothing"""
_TOLD: dict[tuple[str, str], str] = {}


@cache
def known() -> Said:
    """What was written."""
    return dict(json.loads(PATH.read_text(encoding="utf-8"))) if PATH.exists() else {}


def write(said: Said) -> None:
    """What is known by now, and this."""
    known.cache_clear()
    whole = {rule: known().get(rule, {}) | said.get(rule, {}) for rule in sorted(known() | said)}
    ordered = {rule: {name: traces[name] for name in sorted(traces)} for rule, traces in whole.items()}
    PATH.write_text(json.dumps(ordered, indent=0) + "\n", encoding="utf-8")


def changed(said: Said) -> list[str]:
    """Rule and trace where it is known and another."""
    return [
        f"{rule}/{name}"
        for rule, traces in said.items()
        for name, digest in traces.items()
        if known().get(rule, {}).get(name, digest) != digest
    ]


def told(hits_of: HitsOf, rule: Rule, content: bytes, speaks: bool, failed: list[str]) -> str:
    """Digest of what a rule yields for the copies of a file; empty where that is nothing.

    Args:
        failed: gets a line for each copy on which the rule fails.
    """
    name = name_of(content)
    if (rule.slug, name) not in _TOLD:
        seeds = range(int(name, 16), int(name, 16) + (COPIES if speaks else _OF_OTHERS))
        copies = [_said(hits_of, rule, content, seed, failed) for seed in seeds]
        digest = hashlib.sha256(" ".join(copies).encode()).hexdigest()[:6]
        _TOLD[rule.slug, name] = digest if any(copies) else ""
    return _TOLD[rule.slug, name]


def name_of(content: bytes) -> str:
    """What a trace is called here."""
    return hashlib.sha256(content).hexdigest()[:8]


@lru_cache(maxsize=2 * COPIES)  # all rules look at those of a trace
def _copy(content: bytes, seed: int) -> Analysis:
    return Analysis(load_bytes(changed_copy(content, seed)))


def _said(hits_of: HitsOf, rule: Rule, content: bytes, seed: int, failed: list[str]) -> str:
    try:
        hits = list(hits_of(rule, _copy(content, seed)))
    except (TraceAnalyzerError, Unavailable) as why:
        return type(why).__name__
    except Exception as why:
        failed.append(f"{rule.slug} fails on copy {seed}: {why!r}")
        return ""
    return said_by(hits, sentences=False)[2] if hits else ""
