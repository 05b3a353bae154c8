"""Write the generated parts of README.md and of pages in docs/, or check that they are current.

python tools/docs.py --write
python tools/docs.py --check
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.append(str(REPOSITORY))  # run as a file, Python looks for modules beside it alone

from tools.index_page import index_page  # noqa: E402
from traceanalyzer import diagnose, load  # noqa: E402
from traceanalyzer.idle.causes import JUDGED, PROVEN, Cause  # noqa: E402
from traceanalyzer.render.text.report import render_text  # noqa: E402
from traceanalyzer.rule.registry import all_rules  # noqa: E402

PICTURED = Path("fixtures/exposed-copy/bad.json.gz")
_AFTER_FIRST = re.compile(r"\n+2  |\n\.\.\. --verbose shows")  # what follows the first finding
_CHEAT_HEAD = """# What you see, and which rule or command explains it

Find what you see in a timeline in the first column. `traceanalyzer diagnose TRACE` runs the rules, `traceanalyzer facts
TRACE` prints facts. A word after a rule is the case of it that the report names. The last column has a recording to
open in [Perfetto](https://ui.perfetto.dev) next to its report.
This page is generated from `tools/cheatsheet.toml`.

| in the timeline | what it is | answered by | shows in |
|---|---|---|---|
"""


def picture() -> str:
    """The first screen of one fixture up to its first finding, with the command that prints it."""
    trace = load(REPOSITORY / PICTURED)
    text = render_text(diagnose(trace), width=80)
    return f"```console\n$ traceanalyzer {PICTURED}\n{_AFTER_FIRST.split(text)[0].rstrip()}\n```"


def rules() -> str:
    """One row per rule."""
    rows = [f"| `{rule.slug}` | {rule.group} | {rule.title.replace('|', chr(92) + '|')} |" for rule in all_rules()]
    return "\n".join(["| rule | group | what it finds |", "|---|---|---|", *rows])


def proven() -> str:
    """The causes that are cut out of a gap, from the table that runs."""
    return _cause_table(PROVEN)


def judged() -> str:
    """The causes of what remains, from the table that runs."""
    return _cause_table(JUDGED)


def _cause_table(table: Sequence[Cause]) -> str:
    lines = ["| | cause | group | how sure | holds for | stands here because |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {i} | `{row.cause}` | {row.group} | {row.sure} | {row.holds} | {row.why} |"
        for i, row in enumerate(table, start=1)
    ]
    return "\n".join(lines)


def cheat_rows() -> list[dict[str, str]]:
    """Rows of the cheat sheet."""
    text = (REPOSITORY / "tools" / "cheatsheet.toml").read_text(encoding="utf-8")
    rows: list[dict[str, str]] = tomllib.loads(text)["row"]
    return rows


def cheat_sheet() -> str:
    """What one sees in the timeline, and what answers it."""
    return _CHEAT_HEAD + "".join(
        f"| {row['see']} | {row['is']} | {_answer(row)} | {_shown(row)} |\n" for row in cheat_rows()
    )


def _answer(row: Mapping[str, str]) -> str:
    if "command" in row:
        return f"command `{row['command']}`"
    if "fact" in row:
        return f"fact `{row['fact']}`"
    return f"`{row['rule']}`" + (f": {row['cause']}" if "cause" in row else "")


def _shown(row: Mapping[str, str]) -> str:
    """The recordings that the row's answer is about: BASE, and NEW where there is one."""
    traces = [row[name] for name in ("trace", "new") if name in row]
    return ", then ".join(f"[{trace}](../fixtures/{trace}.json.gz)" for trace in traces)


Parts = Mapping[str, Callable[[], str]]
PAGES: dict[str, Parts] = {
    "README.md": {"picture": picture},
    "docs/rules.md": {"rules": rules},
    "docs/accounting.md": {"proven": proven, "judged": judged},
}


WHOLE_PAGES: dict[str, Callable[[], str]] = {"docs/indexes.md": index_page, "docs/cheatsheet.md": cheat_sheet}


def generated(text: str, parts: Parts) -> str:
    """The text with what stands between its marks made anew.

    Raises:
        ValueError: a part has no marks.
    """
    for name, make in parts.items():
        before, begin, rest = text.partition(f"<!-- {name}: generated -->")
        _, end, after = rest.partition(f"<!-- {name}: end -->")
        if not (begin and end):
            raise ValueError(f"the page has no part marked {name!r}")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def _whole(_: str, make: Callable[[], str]) -> str:
    return make()


def main() -> int:
    """0 where all pages are current or have been written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help="rewrite what is not current")
    choice.add_argument("--check", action="store_true", help="exit with 1 if something is not current")
    options = parser.parse_args()
    stale = []
    made = {name: partial(generated, parts=parts) for name, parts in PAGES.items()}
    made |= {name: partial(_whole, make=make) for name, make in WHOLE_PAGES.items()}
    for name, make in made.items():
        page = REPOSITORY / name
        old = page.read_text(encoding="utf-8") if page.exists() else ""
        new = make(old)
        if options.write:
            page.write_text(new, encoding="utf-8")
        elif old != new:
            stale.append(name)
    if stale:
        print(f"not current: {', '.join(stale)}; run python tools/docs.py --write", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
