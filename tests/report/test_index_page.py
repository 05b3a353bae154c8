"""The page of indexes begins with what rules see, and tells of every member what it is."""

from __future__ import annotations

import re

import pytest

from traceanalyzer.report.index_page import index_page
from traceanalyzer.report.view_page import members_of
from traceanalyzer.rule.views import Calls, IdleTime, Work

PAGE = index_page()


@pytest.mark.parametrize("view", [Calls, IdleTime, Work])
def test_every_member_of_a_view_is_in_its_table(view: type) -> None:
    text = re.split(r"^##", PAGE.partition(f"### {view.__name__}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(list(members_of(view))) > 10
    for row in rows:
        assert re.fullmatch(r"\| `.+` \| `.+` \| .* \|", row), row
    assert "`build" not in text


def test_names_come_with_types_and_meanings() -> None:
    assert "| `of_kind(*kinds: str)` | `Self` | The pieces of these kinds. |" in PAGE
    assert "| `outer_op` | `Calls` | " in PAGE
    assert PAGE.index("## What rules see") < PAGE.index("| index | room")
