"""What functions return while loops of chance are looked at is what they returned.

`pytest tests/numbers/test_returned.py --update-findings` writes returned.json in tests/snapshots/numbers; functions
that are new, or have another name, are left out until then.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.numbers.returned import Returned
from tests.numbers.works import works

PATH = Path(__file__).parent.parent / "snapshots/numbers/returned.json"


@pytest.mark.slow
def test_functions_return_what_they_returned(request: pytest.FixtureRequest) -> None:
    returned = Returned()
    for name, work in works():
        with returned.of(name):
            work()
    now = returned.digests()
    if request.config.getoption("--update-findings"):
        PATH.write_text(json.dumps(now, indent=0) + "\n", encoding="utf-8")
    known = json.loads(PATH.read_text(encoding="utf-8"))
    assert len(known) > 1_000
    changed = [name for name in known if now.get(name, known[name]) != known[name]]
    assert not changed, "\n".join(f"{name}: {known[name]} -> {now[name]}" for name in changed)
