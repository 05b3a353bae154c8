"""What a comparison writes for others to read on: rows of the ledger, and a frame of all work."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.comparison.built_sides import axis, of
from traceanalyzer.comparison.ledger import COLUMNS, ledger_rows, ledger_text
from traceanalyzer.comparison.result import DeviceAxis, FaultChange, Row, Word, rows_frame
from traceanalyzer.version import __version__

MS = 1_000_000


def fault(said: float | None, got: float | None, **more: Any) -> FaultChange:
    told: dict[str, Any] = {"low_share": 0.1, "high_share": 0.4} | more
    rules, title = ("implicit-sync", "launch-bound"), "implicit-sync: aten::item"
    return FaultChange("gone", rules, title, "high", said, got_share=got, base_ns=None, new_ns=None, **told)


def compared(*faults: FaultChange, real_ms: float | None = 0.0, difference: float = -0.4, **more: Any) -> Any:
    """A step of 100 ms, and how much more real work the device has in NEW."""
    device = None if real_ms is None else DeviceAxis(100 * MS, 100 * MS, round(real_ms * MS), Word.SAME, {})
    step = axis(Word.FASTER, difference, base_bound="cpu", new_bound="gpu", **more)
    base = SimpleNamespace(
        names=("train.bad.json.gz", "z.json"), gpus=("H100", "H200"), recorded=("shapes", "stacks")
    )
    new = SimpleNamespace(names=("fixed.json",), gpus=("A100",), recorded=("shapes",))
    axes = SimpleNamespace(step=step, device=device)
    return SimpleNamespace(axes=axes, faults=faults, base=base, new=new)


def test_ledger_row_is_the_bases_and_its_largest_rule() -> None:
    (row,) = ledger_rows(compared(fault(0.25, 0.33333)), 0.01234)
    assert row == {
        "program": "train",
        "source": "compare",
        "gpu": "H100, H200",
        "rule": "implicit-sync",
        "fault": "implicit-sync: aten::item",
        "bound": "cpu",
        "kind": "host",
        "said": "0.2500",
        "low": "0.1000",
        "high": "0.4000",
        "true": "0.3333",
        "spread": "0.0123",
        "stacks": "yes",
        "fitted": "yes",
        "commit": __version__,
    }
    assert tuple(row) == COLUMNS


def test_what_nobody_knows_is_left_empty_in_the_ledger() -> None:
    found = compared(fault(0.2, 0.3, low_share=None, high_share=None), measured=True, predicted=False)
    found.axes.step = axis(Word.FASTER, -0.4, base_bound=None, measured=True)
    found.base.recorded = ("shapes",)
    (row,) = ledger_rows(found, None)
    assert [row[name] for name in ("bound", "low", "high", "spread", "stacks", "fitted")] == [
        "", "0.0000", "0.0000", "", "no", "no",
    ]  # fmt: skip


def test_only_faults_with_a_known_saving_have_a_row() -> None:
    faults = fault(0.2, None), fault(None, 0.3), fault(0.1, 0.0), fault(-0.1, -0.2)
    assert [(row["said"], row["true"]) for row in ledger_rows(compared(*faults), None)] == [
        ("0.1000", "0.0000"),
        ("-0.1000", "-0.2000"),
    ]
    found = compared(*faults)
    found.axes.step = None
    assert ledger_rows(found, None) == []


@pytest.mark.parametrize(
    ("real_ms", "kind"), [(-20, "work"), (-19.9, "host"), (0, "host"), (20, "host"), (None, "host")]
)
def test_fix_is_one_of_work_from_half_the_device_difference(real_ms: float | None, kind: str) -> None:
    """The step lost 40 ms, or took 40 ms more."""
    (row,) = ledger_rows(compared(fault(0.2, 0.4), real_ms=real_ms), None)
    assert row["kind"] == kind
    more_ms = None if real_ms is None else -real_ms
    (row,) = ledger_rows(compared(fault(0.2, -0.4), real_ms=more_ms, difference=0.4), None)
    assert row["kind"] == kind


def test_where_the_step_is_as_before_no_fix_was_one_of_work() -> None:
    (row,) = ledger_rows(compared(fault(0.2, 0.0), real_ms=0, difference=0.0), None)
    assert row["kind"] == "host"


@pytest.mark.parametrize("before", ["", "a,b\n", "a,b"])
def test_rows_are_added_on_lines_of_their_own_below_one_header(before: str) -> None:
    rows = ledger_rows(compared(fault(0.2, 0.4), fault(0.3, 0.4)), None)
    lines = ledger_text(rows, before).splitlines()
    assert lines[0] == (before.strip() or ",".join(COLUMNS))
    assert [line.partition(",")[0] for line in lines[1:]] == ["train", "train"]
    assert lines[1].startswith('train,compare,"H100, H200",implicit-sync,')
    assert ledger_text(rows, before).endswith("\n")


def row(word: Word, base: Any, new: Any, **more: Any) -> Row:
    told: dict[str, Any] = {"outer": "", "region": "", "kind": "compute", "rung": "path", "axis": "device"}
    told |= {"ratio": None, "p": None, "delta_ns": 0, "note": ""} | more
    return Row(op="aten::mm", word=word, base=base, new=new, **told)


def test_frame_has_both_sides_and_null_for_missing() -> None:
    sides = of(2, 100, exposed_ns=60, median_ns=50), of(4, 300, exposed_ns=90, median_ns=75)
    frame = rows_frame(
        [row(Word.SLOWER, *sides, ratio=1.5, p=0.01, delta_ns=30, note="n"), row(Word.NEW, None, sides[1])]
    )
    assert frame["word"].tolist() == ["slower", "new"]
    assert [type(word) for word in frame["word"]] == [str, str]
    assert frame.dtypes["delta_ns"] == "int64"
    names = ("count", "ns", "exposed_ns", "median_ns")
    first, second = frame.to_dict("records")
    assert [first[f"base_{name}"] for name in names] == [2, 100, 60, 50]
    assert [first[f"new_{name}"] for name in names] == [4, 300, 90, 75]
    assert [first[name] for name in ("op", "ratio", "p", "delta_ns", "note")] == [
        "aten::mm", 1.5, 0.01, 30, "n",
    ]  # fmt: skip
    assert all(math.isnan(second[name]) for name in [*(f"base_{name}" for name in names), "ratio", "p"])


def test_a_frame_of_no_rows_has_the_same_columns() -> None:
    empty, full = rows_frame([]), rows_frame([row(Word.SAME, of(), of())])
    assert empty.columns.tolist() == full.columns.tolist()
    assert (empty.dtypes["ratio"], empty.dtypes["base_ns"], empty.dtypes["delta_ns"]) == (
        "float64", "float64", "int64",
    )  # fmt: skip
