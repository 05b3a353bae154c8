"""Text for users has none of the phrases of `tools/words.toml`."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from traceanalyzer.rule.registry import all_rules

PHRASES = tomllib.loads((REPOSITORY / "tools/words.toml").read_text("utf-8"))["prose"]
PACKAGE = REPOSITORY / "traceanalyzer"
PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *PACKAGE.rglob("*.md"), *PACKAGE.rglob("*.toml")]
)
NOT_CHECKED = ("CHANGELOG.md",)


def avoided(text: str) -> list[str]:
    """`told apart: write separated` for each phrase that the text has."""
    flat = " ".join(text.split())
    return [f"{found[0]}: write {what}" for phrase, what in PHRASES.items() for found in re.finditer(phrase, flat)]


def texts_in(file: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of the string literals with several words, without docstrings of what is no command."""
    tree = ast.parse(file.read_text("utf-8"))
    notes = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    commands = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    for command in commands:
        if any("click." in ast.unparse(decorator) for decorator in command.decorator_list):
            notes.discard(id(getattr(command.body[0], "value", None)))
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in notes else None
        if isinstance(text, str) and text.count(" ") >= 2:
            yield node.lineno, text


def test_phrases_are_found() -> None:
    assert avoided("groups are told\n apart by whom") == [
        "are told: write reported, printed, predicted",
        "told apart: write separated, recognised, identified",
        "whom: write which rank, which call",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_pages_avoid_the_phrases(page: Path) -> None:
    if str(page.relative_to(REPOSITORY)) not in NOT_CHECKED:
        assert avoided(page.read_text("utf-8")) == []


def test_messages_and_help_avoid_the_phrases() -> None:
    found = [
        f"{file.relative_to(REPOSITORY)}:{line}: {phrase}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, text in texts_in(file)
        for phrase in avoided(text)
    ]
    assert found == []


def test_explain_pages_avoid_the_phrases() -> None:
    assert {rule.slug: found for rule in all_rules() if (found := avoided(rule.page))} == {}
