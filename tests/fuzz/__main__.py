"""Breaks traces at random, to find what the analyzer must not do: `python -m tests.fuzz --seconds 30 --seed 1`.

A case is some events of a real trace, changed in their values (odd numbers, nesting, half characters, times at both
ends), in their order, and then in their bytes (cut, overwritten, packed and damaged). It may be refused with one of
our own errors; anything else, a rule that fails, an event that is neither in a frame nor counted, and more than
seconds for a small file, is a find: it is kept in `--keep`, and belongs into tests/fuzz_cases afterwards, where
test_fuzz_cases.py tries it. Every `_INPUTS`th case is another input than a trace of one rank: see inputs.py.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from itertools import count
from pathlib import Path

from tests.fuzz.cases import case
from tests.fuzz.checks import check
from tests.fuzz.inputs import try_one

_DIAGNOSED = 0.15  # share of the cases
_INPUTS = 10  # they take as many times as long


def run(seconds: float, seed: int, keep: Path, every: int = _INPUTS) -> int:
    """Try cases until the time is over; how many were finds."""
    end, finds = time.monotonic() + seconds, 0
    for number in count(seed):
        if time.monotonic() > end:
            break
        with tempfile.TemporaryDirectory() as folder:
            try:
                _try(number, Path(folder), every)
            except Exception:
                finds += 1
                shutil.copytree(folder, keep / str(number), dirs_exist_ok=True)
                print(f"seed {number}:", traceback.format_exc(limit=-4), file=sys.stderr)
    print(f"{number - seed:,} cases, {finds} finds")
    return finds


def _try(number: int, folder: Path, every: int) -> None:
    rng = random.Random(-number)
    if number % every == 0:
        try_one(rng, folder)
        return
    (path := folder / "case.json").write_bytes(case(number))
    batch_bytes, diagnosed = rng.choice((1_000, 10_000, 1 << 18)), rng.random() < _DIAGNOSED
    check(path, batch_bytes=batch_bytes, diagnosed=diagnosed)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1, help="first case; each has its own, one higher")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-finds"), help="folder for the files of finds")
    parser.add_argument("--inputs", action="store_true", help="none but the other inputs")
    options = parser.parse_args()
    every = 1 if options.inputs else _INPUTS
    sys.exit(1 if run(options.seconds, options.seed, options.keep, every) else 0)


if __name__ == "__main__":
    main()
