"""The damaged files in fixtures/broken: what is saved of each, what is said, and that it can be diagnosed."""

import pytest

from tests.read.same import assert_same
from tests.support.paths import REPOSITORY
from traceanalyzer import diagnose
from traceanalyzer.model.errors import NotATrace, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.finding import Status
from traceanalyzer.read.load import load

BROKEN = REPOSITORY / "fixtures" / "broken"
WHOLE = REPOSITORY / "fixtures" / "hidden-dtod-copy" / "good.json.gz"
REFUSED: dict[str, tuple[type[TraceAnalyzerError], str]] = {
    "empty.json": (UnreadableTrace, "the file is empty"),
    "not-json.json": (UnreadableTrace, "is not JSON"),
    "not-a-trace.json": (NotATrace, "holds no traceEvents"),
}
SAVED = {  # kinds of damage said, and how many events are gone
    "truncated.json": (["truncated event", "truncated"], None),
    "cut-behind-event.json": (["truncated"], None),
    "cut-behind-comma.json": (["truncated"], None),
    "trailing-comma.json": ([], 0),
    "control-characters.json": (["mended"], 0),
    "invalid-utf8.json": (["mended"], 0),
    "unescaped-quotes.json": (["unreadable"], 2),
    "unescaped-backslashes.json": (["mended"], 0),
    "not-finite.json": (["mended"], 0),
    "beyond-64-bit.json": ([], 0),
    "truncated.json.gz": (["truncated compression", "truncated event", "truncated"], None),
}


def test_every_file_is_told_of_here() -> None:
    assert {path.name for path in BROKEN.iterdir()} == REFUSED.keys() | SAVED.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused(name: str) -> None:
    error, problem = REFUSED[name]
    with pytest.raises(error, match=problem):
        load(BROKEN / name)


@pytest.mark.parametrize("name", SAVED)
def test_what_can_be_read_is_read_and_diagnosed(name: str) -> None:
    kinds, lost = SAVED[name]
    trace, whole = load(BROKEN / name), load(WHOLE)
    assert [damage.kind for damage in trace.meta.damage] == kinds
    rows = sum(sum(of.values()) for of in trace.meta.rows.values())
    expected = sum(sum(of.values()) for of in whole.meta.rows.values())
    assert rows == expected - lost if lost is not None else 0 < rows < expected
    assert not [one for one in diagnose(trace).outcomes if one.status is Status.FAILED]


def test_a_comma_too_many_changes_nothing() -> None:
    assert_same(load(BROKEN / "trailing-comma.json"), load(WHOLE))
