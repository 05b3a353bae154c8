"""Rules on programs that differ a little from those that show them."""

import gzip
from pathlib import Path

import orjson
import pytest

from tests.rules.shares import excesses
from tests.support.changed_programs import changed_copy
from tests.support.fixtures import PROGRAMS, TRACES, name_of
from tests.support.trace_builder import load_bytes
from traceanalyzer import diagnose
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.finding import Status

COPIES = 3  # of each small program; of a large one a single copy, whose seed differs from program to program
SLOW_BYTES = 7_500  # compressed: larger programs are slow
BAD = [path for path in TRACES if path.name == "bad.json.gz"]


def _parameter(path: Path) -> object:
    slow = path in PROGRAMS or path.stat().st_size > SLOW_BYTES
    return pytest.param(path, id=name_of(path), marks=[pytest.mark.slow] * slow)


@pytest.mark.parametrize("path", [_parameter(path) for path in (*BAD, *PROGRAMS)])
def test_no_rule_fails_on_changed_programs(path: Path) -> None:
    """No rule raises, and no number is larger than what it is a part of."""
    content = gzip.decompress(path.read_bytes())
    large = path in PROGRAMS or path.stat().st_size > SLOW_BYTES
    for seed in (len(name_of(path)) % COPIES,) if large else range(COPIES):
        try:
            report = diagnose(load_bytes(changed_copy(content, seed)))
        except TraceAnalyzerError:  # what the change left cannot be analysed at all
            continue
        failed = [f"{outcome.rule}: {outcome.why}" for outcome in report.outcomes if outcome.status is Status.FAILED]
        assert (failed, excesses(report)) == ([], []), f"copy {seed}"


@pytest.mark.parametrize("path", BAD[::8], ids=name_of)
def test_changed_copies_differ_by_seed_alone(path: Path) -> None:
    content = gzip.decompress(path.read_bytes())
    first, second, again = (changed_copy(content, seed) for seed in (0, 1, 0))
    assert again == first
    assert len({orjson.dumps(orjson.loads(content)), first, second}) == 3
