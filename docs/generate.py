"""Write the generated parts of README.md, or check that they are current.

python docs/generate.py --write
python docs/generate.py --check
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from traceanalyzer import diagnose, load
from traceanalyzer.render.rules import rule_table
from traceanalyzer.render.terminal import render_text
from traceanalyzer.rule import all_rules

REPOSITORY = Path(__file__).resolve().parent.parent
README = REPOSITORY / "README.md"
PICTURED = Path("fixtures/scheduler-gap/bad.json.gz")


def picture() -> str:
    """What the tool prints about one fixture, with the command that prints it."""
    trace = load(REPOSITORY / PICTURED)
    text = render_text(diagnose(trace), width=80).replace(str(REPOSITORY / PICTURED), str(PICTURED))
    return f"```console\n$ traceanalyzer diagnose {PICTURED}\n{text}```"


def table() -> str:
    """One row per rule."""
    return rule_table(all_rules())


PARTS: dict[str, Callable[[], str]] = {"picture": picture, "rules": table}


def generated(text: str) -> str:
    """The text with what stands between its marks made anew."""
    for name, make in PARTS.items():
        before, begin, rest = text.partition(f"<!-- {name}: generated -->")
        _, end, after = rest.partition(f"<!-- {name}: end -->")
        if not (begin and end):
            raise ValueError(f"README.md has no part marked {name!r}")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def main() -> int:
    """0 where README.md is current or has been written."""
    parser = argparse.ArgumentParser(
        description="The generated parts of README.md: the picture and the rules."
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help="rewrite what is not current")
    choice.add_argument("--check", action="store_true", help="exit with 1 if something is not current")
    options = parser.parse_args()
    old = README.read_text(encoding="utf-8")
    new = generated(old)
    if options.write:
        README.write_text(new, encoding="utf-8")
    elif old != new:
        print("README.md is not current: run python docs/generate.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
