"""What rules say of programs that were changed a little is what they said.

`pytest tests/numbers/test_variations.py --update-findings` writes tests/snapshots/numbers/variations.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.numbers.variations import variations
from tests.rules.limit_programs import PROGRAMS

PATH = Path(__file__).parent.parent / "snapshots/numbers/variations.json"


@pytest.mark.parametrize("rule", PROGRAMS)
def test_a_rule_says_what_it_said_of_changed_programs(rule: str, request: pytest.FixtureRequest) -> None:
    known = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    now = variations(rule)
    if request.config.getoption("--update-findings"):
        known[rule] = now
        text = json.dumps({one: known[one] for one in sorted(known)}, indent=0)
        PATH.write_text(text + "\n", encoding="utf-8")
    assert now == known.get(rule, now)
