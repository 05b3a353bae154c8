"""Write the tables of docs/accounting.md from the code, or check that they are current.

python docs/accounting_tables.py --write
python docs/accounting_tables.py --check
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from traceanalyzer.indexes.idle import PRECEDENCE
from traceanalyzer.indexes.inflation import COSTS
from traceanalyzer.units import format_ns

PAGE = Path(__file__).resolve().parent / "accounting.md"


def causes() -> str:
    """The precedence, as the code has it."""
    lines = ["| | cause | holds if | stands here because |", "|---|---|---|---|"]
    lines += [
        f"| {i} | `{cause}` | {holds} | {why} |" for i, (cause, holds, why) in enumerate(PRECEDENCE, start=1)
    ]
    return "\n".join(lines)


def costs() -> str:
    """What a recorded row is taken to cost."""
    rows = [
        ("`prof.step()`, per step", COSTS.step_ns),
        ("op or annotation", COSTS.op_ns),
        ("runtime or driver call, with the kernel record that it leads to", COSTS.call_ns),
        ("python function, with stacks on", COSTS.python_ns),
        ("allocator's instant, with memory on", COSTS.memory_ns),
    ]
    return "\n".join(
        ["| recorded row | costs |", "|---|---|", *(f"| {what} | {format_ns(ns)} |" for what, ns in rows)]
    )


PARTS: dict[str, Callable[[], str]] = {"causes": causes, "costs": costs}


def generated(text: str) -> str:
    """The page with what stands between its marks made anew."""
    for name, make in PARTS.items():
        before, begin, rest = text.partition(f"<!-- {name}: generated -->")
        _, end, after = rest.partition(f"<!-- {name}: end -->")
        if not (begin and end):
            raise ValueError(f"the page has no part marked {name!r}")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def main() -> int:
    """0 where the page is current or has been written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help="rewrite what is not current")
    choice.add_argument("--check", action="store_true", help="exit with 1 if something is not current")
    options = parser.parse_args()
    old = PAGE.read_text(encoding="utf-8")
    new = generated(old)
    if options.write:
        PAGE.write_text(new, encoding="utf-8")
    return int(options.check and new != old)


if __name__ == "__main__":
    sys.exit(main())
