"""Every number that the commands say of recorded and built traces is the one that they said.

`pytest tests/numbers --update-findings` writes tests/snapshots/numbers/KIND.json: of each column a digest with the
first values, and of each trace one; traces that come later are left out until then. A change shows in which columns of
which traces; which values they are now, `python -m tests.numbers.kinds KIND TRACE` prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.numbers.columns import digest, digest_of_all
from tests.numbers.kinds import KINDS, OF_COPIES, columns
from tests.support.paths import REPOSITORY

FOLDER = REPOSITORY / "tests/snapshots/numbers"
_MOST = 30  # lines of a failure


def _marked(kind: str) -> Any:
    """What is diagnosed, read and drawn is of the same traces: one process; and another one for the changed copies."""
    if kind.startswith(OF_COPIES):
        return pytest.param(kind, marks=[pytest.mark.slow, pytest.mark.xdist_group(" copies")])
    return pytest.param(kind, marks=pytest.mark.xdist_group(" numbers"))


@pytest.mark.parametrize("kind", [_marked(kind) for kind in KINDS])
def test_numbers_are_those_that_were_said(kind: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{kind}.json"
    if request.config.getoption("--update-findings"):
        FOLDER.mkdir(exist_ok=True)
        made = _digests(kind, KINDS[kind][1])
        path.write_text(json.dumps(made, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    known = json.loads(path.read_text(encoding="utf-8"))
    now = _digests(kind, known["traces"])
    changed = [
        f"{part} {name}: {known[part].get(name)} -> {now[part].get(name)}"
        for part in ("columns", "traces")
        for name in known[part] | now[part]
        if known[part].get(name) != now[part].get(name)
    ]
    assert not changed, "\n".join([*changed[:_MOST], f"{len(changed)} in all"])


def _digests(kind: str, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Of the columns over all traces, and of the traces over all columns."""
    whole: dict[str, list[str]] = {}
    traces: dict[str, str] = {}
    for name, found in columns(kind, names):
        traces[name] = digest_of_all(found)
        for column, values in found.items():
            whole.setdefault(column, []).extend(values)
    return {"columns": {name: digest(whole[name]) for name in sorted(whole)}, "traces": traces}
