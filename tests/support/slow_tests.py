"""Which tests `make test` leaves to .ci/run, since others of their file already take long.

    python -m pytest -n 2 --dist loadgroup -m "" --durations=0 -vv > LOG
    python -m tests.support.slow_tests LOG ...       # writes tests/slow.txt

Each file of tests has some seconds in `make test`, which its quickest tests get. That keeps the run short, however many
tests there are, and leaves something of every file in it. A test is quick if others have read its traces before. Where
those are left out, another run shows how long it takes, and the list is made of the logs of both. A name in it that no
test has does nothing.
"""

import re
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

SLOW = REPOSITORY / "tests/slow.txt"
_SECONDS = 1.3  # of each file: a run of 150 s on two cores; chosen
_MEASURED = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(tests/\S+?\.py)(::.*)$", re.MULTILINE)
_GROUP = re.compile(r"@[^@\]]*$")  # that xdist puts behind a test's name


@cache
def listed() -> frozenset[str]:
    """Names of the tests that the list leaves out."""
    return frozenset(SLOW.read_text().splitlines()) if SLOW.exists() else frozenset()


def is_listed(item: pytest.Item) -> bool:
    """Whether the list leaves a test out."""
    return _GROUP.sub("", item.nodeid) in listed()


def beyond(log: str, seconds: float = _SECONDS) -> list[str]:
    """Names of the tests for which the seconds of their file do not suffice, in a log of pytest with durations."""
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    for took, file, name in _MEASURED.findall(log):
        taken[file][_GROUP.sub("", name.rstrip())] += float(took)
    found = []
    for file, tests in taken.items():
        left = seconds
        for name, took in sorted(tests.items(), key=lambda one: (one[1], one[0])):
            left -= took
            if left < 0:
                found.append(file + name)
    return sorted(found)


if __name__ == "__main__":
    every = {name for log in sys.argv[1:] for name in beyond(Path(log).read_text())}
    SLOW.write_text("".join(f"{name}\n" for name in sorted(every)))
