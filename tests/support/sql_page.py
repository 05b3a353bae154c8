"""docs/sql.md: its queries, run by DuckDB and by polars, and its answers.

python -m tests.support.sql_page   # writes the answers anew
"""

import re
import tempfile
from collections.abc import Sequence
from typing import Any

from tests.cli.commands import call
from tests.support.fixtures import FIXTURES
from tests.support.paths import REPOSITORY
from traceanalyzer.render.words.escape import to_markdown

PAGE = REPOSITORY / "docs/sql.md"
ANSWERED = FIXTURES / "exposed-communication" / "bad.json.gz"
QUESTION = re.compile(
    r"^## (?P<question>[^\n]+)\n\n```sql\n(?P<query>.*?)\n```\n\n(?P<answer>(?:\|[^\n]*\n)+)", re.M | re.S
)
_LONGEST = 60  # characters of a name in an answer


def questions(text: str) -> list[re.Match[str]]:
    """Every question of the page, with its query and its answer."""
    return list(QUESTION.finditer(text))


def setups(text: str) -> list[str]:
    """The blocks of python that open the frames: DuckDB's and polars'."""
    return re.findall(r"```python\n(.*?)```", text, re.S)


class Tables:
    """Both engines over the frames of one trace; the current folder has them in `frames/`."""

    def __init__(self, text: str) -> None:
        names: dict[str, Any] = {"print": str}
        for block in setups(text):
            exec(block, names)
        self._duckdb, self._polars = names["db"], names["tables"]

    def duckdb(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns and rows."""
        found = self._duckdb.execute(query)
        return [column[0] for column in found.description], [tuple(row) for row in found.fetchall()]

    def polars(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns and rows."""
        found = self._polars.execute(query)
        return found.columns, found.rows()


def as_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The answer as the page has it."""
    return to_markdown(columns, [[_cell(value) for value in row] for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def write() -> None:
    """The page with the answers that DuckDB gives now."""
    import os

    text = PAGE.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        call("export", ANSWERED, "frames")
        tables = Tables(text)
        for one in questions(text):
            answer = as_table(*tables.duckdb(one["query"]))
            text = text.replace(one[0], one[0].replace(one["answer"], answer))
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
