"""Remedies as code: only what is code is offered to be copied."""

from __future__ import annotations

import pytest

from tests.html.pages import page, parsed, rendered
from tests.recorded import FIXTURES
from traceanalyzer.render.html.remedy import code_in, example, explained
from traceanalyzer.rule.registry import all_rules


@pytest.mark.parametrize(
    ("side", "lines"),
    [
        ("`loss.item()` in every step; `x[x > 0]`.", ("loss.item()", "x[x > 0]")),
        ("add up on the device and read every 100 steps; `torch.where`", ()),
        ("AdamW(params, fused=True)", ("AdamW(params, fused=True)",)),
        ("(a + b).backward(), or grad(u, (x, y))", ("(a + b).backward()", "grad(u, (x, y))")),
        ("model.to(x, y), and the same for its\ninput images", ("model.to(x, y)",)),
        ("`with model.no_sync():` around all but the last", ("with model.no_sync():",)),
        ("F.rms_norm, F.gelu, or the function under torch.compile", ()),
        ("the same in a CUDA graph, fused by torch.compile, or a larger batch", ()),
        ("off; or torch.fill = False where results must repeat", ()),
    ],
)
def test_code_is_told_from_prose(side: str, lines: tuple[str, ...]) -> None:
    assert code_in(side) == lines


def test_no_page_of_a_rule_shows_backticks() -> None:
    """Neither in the example nor in what `explain` says."""
    drawn = [(rule.slug, str(example(rule.page) or ""), str(explained(rule.page))) for rule in all_rules()]
    assert [slug for slug, box, page in drawn if "`" in box + page] == []
    boxes = {slug: box for slug, box, _ in drawn if box}
    assert "implicit-sync" not in boxes
    assert len(boxes) > 10


def test_what_to_write_is_copied_and_what_not_to_write_is_not() -> None:
    trace = FIXTURES / "unfused-optimizer" / "bad.json.gz"
    assert any(found.rule == "unfused-optimizer" for found in page(trace).report.findings)
    copies = [one.attributes["data-copy"] for one in parsed(rendered(trace)).having("data-copy")]
    assert "AdamW(params, fused=True)" in copies
    assert "AdamW(params, foreach=False)" not in copies
