"""The words of causes: one table, whole, and each name once."""

from __future__ import annotations

from traceanalyzer.idle.cause_table import CAUSES
from traceanalyzer.idle.cause_texts import TEXTS
from traceanalyzer.report.words import in_words


def test_every_cause_has_words_of_its_own() -> None:
    assert set(CAUSES) <= set(TEXTS)
    names = [text.name for text in TEXTS.values()]
    assert len(names) == len(set(names))
    assert in_words("idle:dispatching") == TEXTS["dispatching"].name == "waiting for launches"
    assert in_words("copy_h2d") == "copy to the device"
    assert all(all(text) for text in TEXTS.values())
