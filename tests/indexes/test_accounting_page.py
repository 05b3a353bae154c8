"""docs/accounting.md says what the code does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from traceanalyzer.indexes.accounting import CLASSES
from traceanalyzer.indexes.idle import CAUSES
from traceanalyzer.indexes.inflation import COSTS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "accounting.md").read_text(encoding="utf-8")


def generator() -> ModuleType:
    """docs/accounting_tables.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("accounting_tables", DOCS / "accounting_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_current() -> None:
    assert generator().generated(PAGE) == PAGE, "run: python docs/accounting_tables.py --write"


def test_it_can_be_checked_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = generator()
    page = tmp_path / "accounting.md"
    page.write_text(
        "".join(f"<!-- {name}: generated -->\nold\n<!-- {name}: end -->" for name in module.PARTS)
    )
    monkeypatch.setattr(module, "PAGE", page)
    for choice, expected in (("--check", 1), ("--write", 0), ("--check", 0)):
        monkeypatch.setattr("sys.argv", ["accounting_tables.py", choice])
        assert module.main() == expected
    with pytest.raises(ValueError, match="no part marked"):
        module.generated("no marks")


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
