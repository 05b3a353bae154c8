"""Breaks traces at random, to find what the analyzer must not do: `python -m tests.fuzz --seconds 30 --seed 1`.

A case is some events of a real trace, changed in their values (odd numbers, nesting, half characters, times at both
ends), in their order, and then in their bytes (cut, overwritten, packed and damaged). It may be refused with one of
our own errors; anything else, a rule that fails, an event that is neither in a frame nor counted, and more than
seconds for a small file, is a find: it is kept in `--keep`, and belongs into tests/fuzz_cases afterwards, where
test_fuzz_cases.py tries it. Of `_KINDS` cases one is another input than a trace of one rank (inputs.py), and one runs
a command under limits of time and memory (commands.py).
"""

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
from tests.fuzz.commands import check_command
from tests.fuzz.inputs import try_one

_DIAGNOSED = 0.15  # share of the cases
_KINDS = 10  # the two others take as many times as long


def run(seconds: float, seed: int, keep: Path, only: str | None = None) -> int:
    """Try cases until the time is over; how many were finds."""
    end, finds = time.monotonic() + seconds, 0
    for number in count(seed):
        if time.monotonic() > end:
            break
        with tempfile.TemporaryDirectory() as folder:
            try:
                _try(number, Path(folder), only)
            except Exception:
                finds += 1
                shutil.copytree(folder, keep / str(number), dirs_exist_ok=True)
                print(f"seed {number}:", traceback.format_exc(limit=-4), file=sys.stderr)
    print(f"{number - seed:,} cases, {finds} finds")
    return finds


def _try(number: int, folder: Path, only: str | None) -> None:
    rng = random.Random(-number)
    kind = only or {0: "inputs", _KINDS // 2: "commands"}.get(number % _KINDS, "traces")
    if kind == "inputs":
        try_one(rng, folder)
    elif kind == "commands":
        check_command(number, folder)
    else:
        (path := folder / "case.json").write_bytes(case(number))
        batch_bytes, diagnosed = rng.choice((1_000, 10_000, 1 << 18)), rng.random() < _DIAGNOSED
        check(path, batch_bytes=batch_bytes, diagnosed=diagnosed)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1, help="first case; each has its own, one higher")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-finds"), help="folder for the files of finds")
    parser.add_argument("--only", choices=("traces", "inputs", "commands"), help="cases of one kind")
    options = parser.parse_args()
    sys.exit(1 if run(options.seconds, options.seed, options.keep, options.only) else 0)


if __name__ == "__main__":
    main()
