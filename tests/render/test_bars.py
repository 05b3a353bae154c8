"""Where time goes, in few rows: none of it is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from tests.support.hypothesis_profiles import examples
from traceanalyzer.model.report import IDLE, DeviceTime, IdleCause
from traceanalyzer.render.text.bars import _OTHER, _OTHER_WORK, _before, _largest, device_bar
from traceanalyzer.render.text.page import Page

NS = st.integers(1, 10**9)


def test_other_work_is_one_row_before_idle_time() -> None:
    """It had none where causes took all rows: the shares added up to 98.5 %."""
    classes = [("compute", "compute", 94, list[str]()), ("memset", "memset", 14, []), ("idle", IDLE, 892, [])]
    causes = [(f"cause {k}", "", ns, list[str]()) for k, ns in enumerate((450, 235, 66, 49, 41))]
    rows = _largest(classes, [*causes, (_OTHER, "", 51, [])], 8, 1000)
    assert [row[0] for row in rows[:3]] == ["compute", _OTHER_WORK, "idle"]
    assert sum(row[2] for row in rows if row[1]) == 1000
    assert len(rows) == 8


@examples(200)
@given(
    st.lists(NS, max_size=4), st.lists(NS, min_size=1, max_size=5), st.integers(0, 10**6), st.integers(6, 8)
)
def test_causes_in_few_rows_are_still_all_idle_time(
    busy: list[int], causes: list[int], other: int, most: int
) -> None:
    why = [(f"cause {k}", "", ns, ["aten::add"]) for k, ns in enumerate(causes)]
    why += [(_OTHER, "", other, [])] if other else []
    idle = sum(ns for _, _, ns, _ in why)
    classes = [(f"class {k}", f"class {k}", ns, list[str]()) for k, ns in enumerate(busy)]
    classes.append(("idle", IDLE, idle, []))
    rows = _largest(classes, why, most, idle + sum(busy))
    assert len(rows) <= most
    assert ("idle", IDLE, idle, []) in rows
    shown = [ns for _, name, ns, _ in rows if not name]
    if shown:
        assert sum(shown) == idle
    else:  # each is next to nothing, or busy classes take all rows
        assert len(rows) >= most - 1 or max(causes) < 0.005 * (idle + sum(busy))


def test_device_does_not_wait_for_a_call_of_many_kernels() -> None:
    assert [_before(name) for name in ("aten::mm", "cudaGraphLaunch", "hipGraphLaunch", "mine::Launch")] == [
        "before aten::mm",
        "cudaGraphLaunch",
        "hipGraphLaunch",
        "before mine::Launch",
    ]


def test_the_bar_of_few_rows_is_of_all_the_time() -> None:
    """Of four devices each has room for two rows: idle time, and its largest cause."""
    time, page = samples.accounting(), Page(80)
    device_bar(page, time, rank=None, most=2)
    assert [line[4:14].strip() for line in page.lines[1:3]] == ["idle", "data loadi"]
    busy, idle = (page.lines[0].count(glyph) for glyph in "■·")
    assert idle / (busy + idle) == pytest.approx(time.classes_ns[IDLE] / time.length_ns, abs=0.05)


def drawn(
    time: DeviceTime, *, rank: int | None = None, most: int | None = None, width: int = 80
) -> list[str]:
    page = Page(width)
    device_bar(page, time, rank=rank, most=most)
    return page.lines


LEGEND = "  The outer rows add up to 100 %, the indented ones to the idle time."


def test_a_device_has_a_bar_and_a_row_for_every_class_and_cause() -> None:
    """The bar has what is left of 80 columns: 45, of which 35 %, 2 % and 63 % are 16, 1 and 28 whole ones."""
    first, *rows = drawn(samples.accounting())
    assert first == "shares of recorded time, device 0  " + "█" * 16 + "▼" + "·" * 28
    assert rows == [
        "  █ compute                 35.0 %   35.0 ms",
        "  ▼ copy to the device       2.0 %   2.00 ms",
        "  · idle                    63.0 %   63.0 ms",
        "    data loading            50.0 %   50.0 ms  enumerate(DataLoa…derIter.__next__",
        "    waiting for launches    12.0 %   12.0 ms  before aten::mm",
        "    not explained            1.0 %   1.00 ms",
        LEGEND,
    ]
    of_a_rank = drawn(samples.accounting(), rank=0)
    assert of_a_rank[0].startswith("shares of recorded time, rank 0, device 0  █")
    assert of_a_rank[1:] == rows[:-1]  # one legend for all ranks stands elsewhere


def test_a_device_that_is_never_idle_has_no_row_for_it() -> None:
    busy = samples.accounting(parts_ns={"compute": 100 * MS, "idle:python": 0}, idle_causes=())
    assert drawn(busy)[1:] == ["  █ compute                100.0 %    100 ms"]


def causes_of(*ops: tuple[str, str, int]) -> list[str]:
    """Rows of causes, each of (cause, op, ms)."""
    parts: dict[str, int] = {"compute": 10 * MS}
    for cause, _, ms in ops:
        parts[f"idle:{cause}"] = parts.get(f"idle:{cause}", 0) + ms * MS
    named = tuple(IdleCause(f"idle:{cause}", op, ms * MS) for cause, op, ms in ops)
    rows = drawn(samples.accounting(parts_ns=parts, idle_causes=named), width=120)
    return [row[4:] for row in rows if row.startswith("    ")]


def test_quarter_of_a_cause_names_its_op_but_no_own_launch() -> None:
    launch = "cudaLaunchKernel"
    (row,) = causes_of(("python", launch, 26), ("python", "a", 25), ("python", "b", 25), ("python", "c", 24))
    assert row.endswith("100 ms  a, b")


@pytest.mark.parametrize(
    ("first", "second", "rest", "named"),
    [(50, 0, 50, ["a"]), (49, 0, 51, []), (25, 25, 50, ["a, b"]), (26, 24, 50, []), (26, 25, 49, ["a, b"])],
)
def test_ops_are_named_beside_a_cause_where_they_have_half_of_it(
    first: int, second: int, rest: int, named: list[str]
) -> None:
    others = [("python", f"c{at}", 1) for at in range(rest)]
    (row,) = causes_of(*[one for one in (("python", "a", first), ("python", "b", second)) if one[2]], *others)
    assert row.split("100 ms")[1].split("  ")[1:] == named


def test_work_without_own_row_is_named_overlapping_has_one() -> None:
    """Two rows of 80 and 60 of 1,000 ms have no room, the one of 2 ms has."""
    parts = {"compute": 438, "copy_h2d": 80, "compute_over_communication": 2, "memset": 60}
    parts |= {"idle:python": 219, "idle:engine": 201}
    time = samples.accounting(parts_ns={name: ms * MS for name, ms in parts.items()}, idle_causes=())
    lines = drawn(time, most=6)
    (other,) = [line for line in lines if "other GPU work" in line]
    assert other.split("140 ms  ")[1] == "copy to the device"
    assert any("compute and communication at once" in line for line in lines)


@pytest.mark.parametrize(
    ("parts_ns", "most", "told"),
    [
        ({"compute": 60, "idle:python": 40}, None, True),
        ({"compute": 100}, None, False),  # nothing is indented
        ({"compute": 60, "idle:python": 20, "idle:tail": 20}, 4, True),
        ({"compute": 60, "idle:python": 20, "idle:tail": 20}, 3, False),  # a cause has no row
        ({"compute": 50, "copy_h2d": 10, "idle:python": 40}, 2, False),  # work has none
    ],
)
def test_that_rows_add_up_is_said_where_they_do(
    parts_ns: dict[str, int], most: int | None, told: bool
) -> None:
    time = samples.accounting(parts_ns={name: ms * MS for name, ms in parts_ns.items()}, idle_causes=())
    assert (LEGEND in drawn(time, most=most)) is told


@pytest.mark.parametrize(
    ("cause", "named"),
    [
        ("dispatching", "before aten::mm, aten::add"),
        ("launch-latency", "before aten::mm, aten::add"),
        ("synchronisation", "aten::mm, aten::add"),
    ],
)
def test_the_op_that_the_device_waits_for_stands_after_before(cause: str, named: str) -> None:
    (row,) = causes_of((cause, "cudaLaunchKernel", 30), (cause, "aten::mm", 30), (cause, "aten::add", 25))
    assert row.endswith(f"  {named}")


@pytest.mark.parametrize(("count", "rest"), [(5, False), (6, True)])
def test_five_causes_have_a_row_and_the_others_one(count: int, rest: bool) -> None:
    rows = causes_of(*((f"cause-{k}", f"aten::op{k}", 10 - k) for k in range(count)))
    assert [row.split()[-1] for row in rows[:5]] == [f"aten::op{k}" for k in range(5)]
    assert rows[5:] == ["other causes             5.0 %   5.00 ms"] * rest


def test_causes_of_which_none_has_a_row_have_no_rest() -> None:
    """Six classes of work take all rows."""
    classes = [(f"class {k}", f"class {k}", 120 - k, list[str]()) for k in range(5)] + [
        ("idle", IDLE, 410, [])
    ]
    causes = [(f"cause {k}", "", 82, list[str]()) for k in range(5)]
    rows = _largest(classes, causes, 6, 1000)
    assert [row[0] for row in rows] == [*(f"class {k}" for k in range(5)), "idle"]


@pytest.mark.parametrize(("ns", "shown"), [(4, False), (5, True)])
def test_little_room_hides_parts_below_half_a_percent(ns: int, shown: bool) -> None:
    """Where there is room for six rows, what has none of its own is in a row for the rest."""
    classes = [
        ("compute", "compute", 995 - ns, list[str]()),
        ("memset", "memset", ns, []),
        ("idle", IDLE, 5, []),
    ]
    assert [row[0] for row in _largest(classes, [], 3, 1000)] == ["compute", *["memset"] * shown, "idle"]
    assert [row[0] for row in _largest(classes, [], 6, 1000)] == [
        "compute",
        "memset" if shown else _OTHER_WORK,
        "idle",
    ]


def test_the_only_work_that_is_shown_together_is_the_gpus() -> None:
    classes = [(f"class {k}", f"class {k}", 2, list[str]()) for k in range(3)] + [("idle", IDLE, 994, [])]
    rows = _largest(classes, [], 6, 1000)
    assert rows[0] == ("GPU work", "other", 6, ["class 0", "class 1", "class 2"])
    assert rows[1][0] == "idle"


def test_idle_time_has_a_row_even_where_it_is_little() -> None:
    classes = [("compute", "compute", 999, list[str]()), ("idle", IDLE, 1, [])]
    assert [row[0] for row in _largest(classes, [], 2, 1000)] == ["compute", "idle"]
    more = [("compute", "compute", 900, list[str]()), ("memset", "memset", 60, []), ("idle", IDLE, 40, [])]
    assert [row[0] for row in _largest(more, [], 2, 1000)] == ["compute", "idle"]


def test_copies_and_waits_have_the_colour_of_their_kind() -> None:
    page = Page(80, colour=True)
    device_bar(
        page, samples.accounting(parts_ns={"copy_h2d": 60 * MS, "communication_waiting": 40 * MS}), rank=None
    )
    assert page.lines[1].startswith("  \x1b[36m▼\x1b[0m copy to the device")
    assert page.lines[2].startswith("  \x1b[35m◌\x1b[0m ")
