"""Texts that a test expects in full, kept as files: UPDATE_SNAPSHOTS=1 pytest rewrites them."""

import os

from tests.support.paths import REPOSITORY

FOLDER = REPOSITORY / "tests/snapshots"


def matches(name: str, text: str) -> bool:
    """Whether the text is what the file holds; pytest shows the difference."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    return True
