"""Whatever a rule says in these tests is what it said: see kept_sayings.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rules import kept_sayings
from traceanalyzer.rule.registry import Rule

_HEARD: kept_sayings.Said = {}


@pytest.fixture(autouse=True)
def _says_what_it_said(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test fails where a rule yields other numbers than before; a test by hypothesis builds what it likes."""
    if getattr(request.function, "is_hypothesis_test", False):
        yield
        return
    heard: kept_sayings.Said = {}
    monkeypatch.setattr(Rule, "hits", kept_sayings.listening(Rule.hits, heard))
    yield
    if request.config.getoption("--update-findings"):
        _HEARD.update(heard)
        return
    known = kept_sayings.known()
    changed = [name for name, digest in heard.items() if known.get(name, digest) != digest]
    assert not changed, f"other numbers than in {kept_sayings.PATH.name}: {changed}"


def pytest_sessionfinish() -> None:
    """What was heard with --update-findings is written."""
    if _HEARD:
        kept_sayings.write(_HEARD)
