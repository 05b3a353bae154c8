"""Limits say where they come from, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from traceanalyzer.rule.limits import LimitInfo, limit, limits_of


@dataclass(frozen=True, slots=True)
class Limits:
    """Some limits."""

    min_gap_ns: int = limit(2_000, "shortest gap on an H200")
    min_share: float = limit(0.005, "where low begins")
    min_bytes: int = limit(1 << 20, "one page")
    least: float = 0.5


def test_limits_are_listed_with_value_unit_and_source() -> None:
    listed = list(limits_of(Limits()))
    assert listed[0] == LimitInfo("min_gap_ns", 2_000, "shortest gap on an H200")
    assert [one.shown for one in listed] == ["2.00 µs", "0.50 %", "1.00 MiB", ""]
    assert listed[3] == LimitInfo("least", 0.5, "")


def test_limits_are_plain_fields() -> None:
    assert Limits().min_gap_ns == 2_000
    assert next(limits_of(replace(Limits(), min_gap_ns=7))).value == 7
    assert list(limits_of(None)) == []
