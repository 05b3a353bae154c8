"""Whatever a rule says in these tests is what it said: see kept_sayings.py and changed_copies.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rules import changed_copies, kept_sayings
from traceanalyzer.rule.registry import Rule

_HEARD: kept_sayings.Said = {}
_OF_COPIES: changed_copies.Said = {}


@pytest.fixture(autouse=True)
def _says_what_it_said(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test fails where a rule yields other numbers than before; a test by hypothesis builds what it likes."""
    if getattr(request.function, "is_hypothesis_test", False):
        yield
        return
    heard: kept_sayings.Said = {}
    of_copies: changed_copies.Said | None = None if request.config.option.markexpr else {}
    failed: list[str] = []
    monkeypatch.setattr(Rule, "hits", kept_sayings.listening(Rule.hits, heard, of_copies, failed))
    yield
    assert not failed, "\n".join(failed)
    if request.config.getoption("--update-findings"):
        _HEARD.update(heard)
        for rule, traces in (of_copies or {}).items():
            _OF_COPIES.setdefault(rule, {}).update(traces)
        return
    known = kept_sayings.known()
    changed = [name for name, digest in heard.items() if known.get(name, digest) != digest]
    assert not changed, f"other numbers than in {kept_sayings.PATH.name}: {changed}"
    changed = changed_copies.changed(of_copies or {})
    assert not changed, f"other numbers of changed copies than in {changed_copies.PATH.name}: {changed}"


def pytest_sessionfinish() -> None:
    """What was heard with --update-findings is written."""
    if _HEARD:
        kept_sayings.write(_HEARD)
    if _OF_COPIES:
        changed_copies.write(_OF_COPIES)
