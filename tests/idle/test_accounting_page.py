"""docs/accounting.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from traceanalyzer.idle.accounting import CLASSES
from traceanalyzer.idle.causes import CAUSES
from traceanalyzer.idle.inflation import COSTS

PAGE = (Path(__file__).parents[2] / "docs" / "accounting.md").read_text(encoding="utf-8")


def test_every_class_and_cause_is_explained() -> None:
    for name in CLASSES:
        assert f"`{name}`" in PAGE or name == "idle"
    for cause in CAUSES:
        assert f"| `{cause}` |" in PAGE


def test_the_stated_range_is_the_codes() -> None:
    assert f"within {COSTS.low_factor} to {COSTS.high_factor} times" in PAGE
    assert f"capped at {COSTS.max_share:.0%}".replace("%", " %") in PAGE
    assert COSTS.min_idle_share == 0.25
    assert "three quarters of the window" in PAGE
