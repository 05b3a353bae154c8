"""docs/notebook.md: its cells and what each shows.

python -m tests.support.notebook_page   # writes the outputs anew
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from tests.support.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "notebook.md"
CELL = re.compile(r"```python\n(?P<code>.*?)```\n\n```text\n(?P<shown>.*?)```", re.S)
_LOOKS = ("display.width", 100, "display.max_columns", None, "display.max_colwidth", 50)


def cells(text: str, names: dict[str, Any]) -> Iterator[tuple[re.Match[str], str]]:
    """Every cell, run after those before it, with what it shows; the current folder is the repository."""
    for cell in CELL.finditer(text):
        *before, last = ast.parse(cell["code"]).body
        assert isinstance(last, ast.Expr)
        exec(compile(ast.Module(before, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        with pd.option_context(*_LOOKS):
            yield cell, "\n".join(line.rstrip() for line in repr(value).splitlines()) + "\n"


def write() -> None:
    """The page with the outputs of now."""
    text = PAGE.read_text("utf-8")
    for cell, shown in cells(text, {}):
        text = text.replace(cell[0], f"```python\n{cell['code']}```\n\n```text\n{shown}```")
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
