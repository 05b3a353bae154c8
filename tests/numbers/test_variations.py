"""What rules say of programs that were changed a little is what they said.

`pytest tests/numbers/test_variations.py --update-findings -n 0 -m ""` writes variations.json, predicates.json,
array_functions.json and returned.json in tests/snapshots/numbers; functions that are new, or have another name, are
left out until then.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.numbers import array_functions, predicates, works
from tests.numbers.variations import variations
from tests.numbers.varied_programs import VARIED

FOLDER = Path(__file__).parent.parent / "snapshots/numbers"
PATH = FOLDER / "variations.json"
FUNCTIONS = {
    "predicates": predicates.outcomes,
    "array_functions": array_functions.outcomes,
    "returned": works.outcomes,
}


@pytest.mark.parametrize("rule", VARIED)
def test_a_rule_says_what_it_said_of_changed_programs(rule: str, request: pytest.FixtureRequest) -> None:
    known = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    now = variations(rule)
    if request.config.getoption("--update-findings"):
        known[rule] = now
        text = json.dumps({one: known[one] for one in sorted(known)}, indent=0)
        PATH.write_text(text + "\n", encoding="utf-8")
    assert now == known.get(rule, now)


@pytest.mark.parametrize("made", [pytest.param(one, marks=pytest.mark.slow) for one in FUNCTIONS])
def test_functions_say_what_they_said(made: str, request: pytest.FixtureRequest) -> None:
    path, now = FOLDER / f"{made}.json", FUNCTIONS[made]()
    if request.config.getoption("--update-findings"):
        path.write_text(json.dumps(now, indent=0) + "\n", encoding="utf-8")
    known = json.loads(path.read_text(encoding="utf-8"))
    assert len(known) > 100
    changed = [name for name in known if now.get(name, known[name]) != known[name]]
    assert not changed, "\n".join(f"{name}: {known[name]} -> {now[name]}" for name in changed)
