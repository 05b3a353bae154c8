"""What is freed is used again, where the C library lets itself be told so, and nothing happens elsewhere."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from traceanalyzer.cli.loading import reuse_freed_memory

_FAULTS = """
import resource, sys
import numpy as np
from traceanalyzer.cli.loading import reuse_freed_memory
if sys.argv[1] == "keep":
    assert reuse_freed_memory()
def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        [np.ones(3 << 17) for _ in range(8)]  # 3 MB each: huge pages are from 4 MB on
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(2)
print(faults(20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_columns_that_come_and_go_do_not_fault_again() -> None:
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", _FAULTS, how], capture_output=True, check=True).stdout)
        for how in ("keep", "default")
    )
    assert kept < 20  # of 6,000 pages that each of the 20 rounds touches
    assert given_back > 100 * 20


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_mallopt(name: None) -> object:
        return object()

    monkeypatch.setattr(ctypes, "CDLL", without_mallopt)
    assert not reuse_freed_memory()


def test_windows_has_no_program_as_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: None) -> object:
        raise TypeError("argument of type 'NoneType' is not iterable")

    monkeypatch.setattr(ctypes, "CDLL", refused)
    assert not reuse_freed_memory()


@pytest.mark.parametrize(
    ("answers", "kept", "asked"),
    [((1, 1), True, 2), ((1, 0), False, 2), ((0, 1), False, 1), ((0, 0), False, 1)],
)
def test_memory_is_kept_where_both_settings_are_taken(
    answers: tuple[int, int], kept: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks up to 32 MiB, and 1 GiB of them in all; the numbers -3 and -1 are those of glibc's malloc.h."""
    told: list[tuple[int, int]] = []

    def mallopt(name: int, value: int) -> int:
        told.append((name, value))
        return answers[len(told) - 1]

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert reuse_freed_memory() is kept
    assert told == [(-3, 33_554_432), (-1, 1_073_741_824)][:asked]
