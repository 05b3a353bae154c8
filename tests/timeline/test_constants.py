"""Names that are bound twice at module level: the second hides the first from all that reads it."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from tests.support.paths import REPOSITORY

MODULES = sorted((REPOSITORY / "traceanalyzer").rglob("*.py"))


def test_constants_are_bound_once() -> None:
    twice = {path.relative_to(REPOSITORY): bound_twice(path) for path in MODULES}
    assert len(twice) > 400
    assert {path: names for path, names in twice.items() if names} == {}


def bound_twice(path: Path) -> list[str]:
    """Names of a module that are bound more than once."""
    bound: Counter[str] = Counter()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            bound.update(one.id for one in names if isinstance(one, ast.Name))
    return [name for name, count in bound.items() if count > 1]
