"""How deep a value may be nested."""

from __future__ import annotations

from typing import Any

import pytest

from traceanalyzer.read.text.brackets import too_deep


def nested(levels: int, inner: Any = 1) -> Any:
    """Lists and mappings in turn around a value."""
    for level in range(levels):
        inner = [0, inner] if level % 2 else {"a": 0, "b": inner}
    return inner


@pytest.mark.parametrize(("levels", "deep"), [(0, False), (63, False), (64, True), (9_999, True)])
def test_a_value_has_less_than_64_levels_around_it(levels: int, deep: bool) -> None:
    assert too_deep(nested(levels)) is deep


def test_many_values_beside_one_another_are_not_deep() -> None:
    assert not too_deep([[{"a": [1]}] * 100] * 3)
