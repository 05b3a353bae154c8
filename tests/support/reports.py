"""Public bug reports rebuilt as traces: small files beside the shared traces."""

from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import SHARED
from traceanalyzer import Report, diagnose, load

REPORTS = SHARED.parent / "reports"


def report_file(name: str) -> Path:
    """The file of that name, such as "ts_zero"; the test is skipped where the reports are absent."""
    file = REPORTS / f"{name}.json.gz"
    if not file.exists():
        pytest.skip("the rebuilt reports are absent")
    return file


@cache
def diagnosed(name: str) -> Report:
    """What is found in the file of that name."""
    return diagnose(load(report_file(name)))


def first_finding(name: str) -> tuple[str, str]:
    """(rule, cause) of the finding that stands first."""
    found = next(one for one in diagnosed(name).findings if one.cost_ns or one.saving)
    return found.rule, found.cause or ""
