"""docs/accounting.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from traceanalyzer.idle.accounting import CLASSES
from traceanalyzer.idle.causes import CAUSES

PAGE = (Path(__file__).parents[2] / "docs" / "accounting.md").read_text(encoding="utf-8")


def test_every_class_and_cause_is_explained() -> None:
    for name in CLASSES:
        assert f"`{name}`" in PAGE or name == "idle"
    for cause in CAUSES:
        assert f"| `{cause}` |" in PAGE
