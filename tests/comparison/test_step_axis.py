"""When one step is longer than another, at one pace of their hosts, and how captures become one."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.comparison.built_sides import work_row
from traceanalyzer.comparison.jobs import common_share
from traceanalyzer.comparison.result import StepAxis, Word
from traceanalyzer.comparison.snapshot import TABLES, Captures, StepTime, mean_step, merged_table
from traceanalyzer.comparison.step_axis import (
    needed_difference,
    spread_steps,
    step_axis,
    steps_apart,
    word_by_interval,
    word_by_size,
)
from traceanalyzer.comparison.waterfall import UNEXPLAINED, waterfall_of
from traceanalyzer.comparison.work_tables import exposed_ns
from traceanalyzer.timeline.device_work import KINDS

US = 1_000


def step(ns: int = 100, low_ns: int = 90, high_ns: int = 110, **more: Any) -> StepTime:
    return StepTime(ns, low_ns, high_ns, more.pop("recorded_ns", 150), True, **more)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.001, 0.02, Word.SLOWER),
        (0.001, 0.009, Word.SAME),
        (-0.001, 0.5, Word.SAME),
        (-0.02, -0.001, Word.FASTER),
        (-0.009, -0.001, Word.SAME),
    ],
)
def test_difference_needs_a_hundredth_beyond_the_interval(low: float, high: float, word: Word) -> None:
    assert word_by_interval((low, high)) is word


@pytest.mark.parametrize(
    ("bounds", "pace", "changed", "needed"),
    [
        (("gpu", "communication"), 1.2, True, 0.14),
        (("gpu", "cpu"), 1.2, True, 0.10),
        (("gpu", "cpu"), 1.0, True, 0.21),
        (("cpu", "cpu"), 1.2, False, 0.21),
    ],
)
def test_needed_without_intervals(bounds: tuple[str, str], pace: float, changed: bool, needed: float) -> None:
    assert needed_difference(*(step(bound=bound) for bound in bounds), pace, changed) == needed


def test_steps_of_two_machines_differ_if_intervals_do() -> None:
    """Up to 10 % more than the quicker, and the slower down to 20 % less than it is said to take."""
    apart = steps_apart(step(100, 90, 110), step(200, 160, 260))
    assert apart == pytest.approx(1.1 * 1.25 - 1)


@pytest.mark.parametrize(
    ("ns", "real_ns", "quicker", "word"),
    [
        ((100, 116), 0, "cpu", Word.SLOWER),  # more than the noise
        ((116, 100), 0, "cpu", Word.FASTER),
        ((100, 110), 5, "gpu", Word.SLOWER),  # half of it is on the device
        ((100, 110), 4, "gpu", Word.UNKNOWN),
        ((100, 110), 5, "cpu", Word.UNKNOWN),  # the quicker one has idle time to give
        ((1_000, 1_009), 9, "gpu", Word.UNKNOWN),  # less than any step is known
        ((110, 100), -5, "gpu", Word.FASTER),
    ],
)
def test_device_decides_below_noise(ns: tuple[int, int], real_ns: int, quicker: str, word: Word) -> None:
    device: Any = SimpleNamespace(word=Word.SLOWER if real_ns > 0 else Word.FASTER, real_ns=real_ns)
    bounds = [quicker, "cpu"] if ns[0] < ns[1] else ["cpu", quicker]
    steps = [step(bound=bound) for bound in bounds]
    assert word_by_size(0.14, ns, device, (steps[0], steps[1])) is word


def test_a_predicted_step_is_spread_as_its_recorded_ones() -> None:
    capture: Any = SimpleNamespace(step=step(100, each_ns=(100, 300)))
    assert spread_steps(capture) == [50, 150]
    assert spread_steps(SimpleNamespace(step=step(100))) == [100]  # type: ignore[arg-type]


def test_captures_are_means_and_what_one_lacks_is_none_there() -> None:
    both = mean_step([step(100, 90, 110, each_ns=(1, 2)), step(200, 150, 260, recorded_ns=250, each_ns=(3,))])
    assert both is not None
    assert (both.ns, both.low_ns, both.high_ns, both.recorded_ns) == (150, 120, 185, 200)
    assert both.each_ns == (1, 2, 3)
    columns = ["counter", "outer", "op", "name", "count", "least", "most"]
    rows = [("launches", "", "aten::mm", "k", 4.0, 3, 5), ("launches", "", "aten::add", "k", 2.0, 2, 2)]
    more = [("launches", "", "aten::mm", "k", 6.0, 6, 7)]
    merged = merged_table("calls", [pd.DataFrame(one, columns=columns) for one in (rows, more)])
    told = merged.set_index("op")[["count", "least", "most"]].to_dict("index")
    assert told == {
        "aten::mm": {"count": 5.0, "least": 3, "most": 7},
        "aten::add": {"count": 1.0, "least": 0, "most": 2},
    }
    named = ["name", "part", "count", "mean_ns"]
    hosts = [pd.DataFrame([("mm", 0, 2.0, ns)], columns=named) for ns in (10.0, 30.0)]
    alone = pd.DataFrame([("add", 0, 3.0, 9.0)], columns=hosts[0].columns)
    means = merged_table("host", [pd.concat([hosts[0], alone]), hosts[1]]).set_index("name")
    assert means["mean_ns"].to_dict() == {"mm": 20.0, "add": 9.0}
    assert means["count"].to_dict() == {"mm": 2.0, "add": 1.5}


def test_captures_of_one_program_differ_by_kernel_medians() -> None:
    columns = [*TABLES["work"]]
    blank = {name: "" if kind == "str" else 1 for name, kind in TABLES["work"].items()}
    rows: list[dict[str, Any]] = [blank | {"samples": times} for times in ([1.0, 2.0, 9.0], [4.0, 6.0])]
    merged = merged_table("work", [pd.DataFrame([row], columns=columns) for row in rows])
    assert merged["medians"].tolist() == [[2.0, 5.0]]


def test_each_instant_of_a_device_counts_for_one_piece_of_work() -> None:
    """Compute before communication before copies; of two of a kind the first; devices apart."""
    spans = [("compute", 0, 10, 0), ("compute", 5, 20, 0), ("compute", 12, 15, 0)]
    spans += [("communication", 8, 30, 0), ("copy_h2d", 25, 40, 0), ("copy_h2d", 0, 10, 1)]
    kinds, starts, ends, devices = zip(*sorted(spans, key=lambda one: one[1]), strict=True)
    work: Any = SimpleNamespace(
        row=np.arange(len(spans)),
        kind=np.array([KINDS.index(kind) for kind in kinds]),
        start_ns=np.array(starts),
        end_ns=np.array(ends),
        device=np.array(devices),
    )
    found = dict(zip(zip(kinds, starts, devices, strict=True), exposed_ns(work).tolist(), strict=True))
    assert found == {
        ("compute", 0, 0): 10,
        ("compute", 5, 0): 10,
        ("compute", 12, 0): 0,
        ("communication", 8, 0): 10,
        ("copy_h2d", 25, 0): 10,
        ("copy_h2d", 0, 1): 10,
    }


def test_work_in_common_is_a_share_of_the_time() -> None:
    one, other = {"mm": 0.75, "add": 0.25}, {"mm": 0.5, "sum": 0.5}
    assert common_share(one, other) == common_share(other, one) == 0.5
    assert (common_share({}, {}), common_share(one, {})) == (1.0, 0.0)


def idle(*rows: tuple[str, str, float]) -> Any:
    """A side with this idle time, by cause and op."""
    columns = ["cause", "outer", "op", "ns"]
    table = pd.DataFrame([(cause, op, op, ns) for cause, op, ns in rows], columns=columns)
    return SimpleNamespace(tables={"idle": table})


def test_parts_of_two_steps_add_up_and_explain_the_difference() -> None:
    """More and shorter products; a copy that is hidden better; idle time in the proportion that was recorded."""
    work = [
        work_row("compute", "mm", (2, 400, 400), (4, 600, 600)),
        work_row("copy_h2d", "copy", (1, 100, 100), (1, 100, 50)),
        work_row("memset", "zero", (0, 0, 0), (1, 10, 10)),
    ]
    sides = idle(("late", "mm", 300.0), ("unknown", "", 100.0)), idle(("late", "mm", 50.0))
    found = waterfall_of((1_000, 1_110), work, sides)
    mean = 200 / math.log(600 / 400)
    more, shorter = round(mean * math.log(2)), round(mean * (math.log(600 / 400) - math.log(2)))
    assert [(one.name, one.base_ns, one.new_ns, one.delta_ns) for one in found.parts] == [
        ("mm", 400, 600, 200),
        ("unknown", 125, 0, -125),
        ("late: mm", 375, 450, 75),
        ("copy", 100, 50, -50),
        ("zero", 0, 10, 10),
    ]
    assert [(one.by_count_ns, one.by_duration_ns, one.by_overlap_ns) for one in found.parts] == [
        (more, shorter, 200 - more - shorter),
        (None, None, None),
        (None, None, None),
        (0, 0, -50),
        (10, 0, 0),
    ]
    groups = {"compute": (400, 600, 200), "copies": (100, 50, -50)}
    assert found.groups == groups | {"memsets": (0, 10, 10), "idle": (500, 450, -50)}


def test_prediction_shorter_than_its_work_is_a_separate_part() -> None:
    work = [work_row("compute", "mm", (1, 400, 400), (1, 400, 400))]
    found = waterfall_of((300, 400), work, (idle(("late", "mm", 9.0)), idle()))
    first = found.parts[0]
    assert (first.group, first.name, first.base_ns, first.new_ns) == ("unexplained", UNEXPLAINED, -100, 0)
    assert sum(one.base_ns for one in found.parts) == 300


HALVES = ((0.5, 2_000.0), (1.0, 1_000.0), (2.0, 500.0))  # all of it is the CPU's


def side(ns: int = 1_000, *, mm_us: float = 10.0, captures: int = 1, gpu: str = "H200", **more: Any) -> Captures:
    """Captures whose host takes so long for a product."""
    recorded = more.pop("recorded", ("shapes",))
    fields = {"predicted": True, "bound": "cpu", "paces": HALVES, "low_ns": ns, "high_ns": ns, **more}
    host = pd.DataFrame([("mm", 0, 1, 1e3 * mm_us)], columns=["name", "part", "count", "mean_ns"])
    step = StepTime(ns=ns, recorded_ns=ns, each_ns=(ns, ns), **fields)
    read = {"gpus": (gpu,), "versions": {}, "recorded": recorded, "tables": {"host": host}}
    one: Any = SimpleNamespace(step=step, **read)
    return Captures((one,) * captures, one)


def axis(base: Captures, new: Captures, *, changed: bool = False) -> StepAxis:
    found = step_axis(base, new, None, changed)
    assert found is not None
    return found


def test_slower_host_in_one_recording_makes_no_difference() -> None:
    """Twice as long for the same calls: both steps are told for a host between the two."""
    found = axis(side(1_000), side(2_000, mm_us=20))
    assert (found.pace, found.base_ns, found.new_ns) == (2.0, 1_414, 1_414)
    assert (found.base_raw_ns, found.new_raw_ns) == (1_000, 2_000)
    assert found.word is Word.UNKNOWN


@pytest.mark.parametrize(
    ("captures", "more", "pace"),
    [
        ((1, 1), ({}, {}), 2.0),
        ((3, 2), ({}, {}), 2.0),
        ((3, 3), ({}, {}), 1.0),  # their spread holds that of the hosts
        ((1, 1), ({"measured": True}, {}), 2.0),
        ((1, 1), ({"measured": True}, {"measured": True}), 1.0),  # timed by the user
        ((1, 1), ({"predicted": False}, {}), 1.0),  # as recorded
    ],
)
def test_few_captures_are_brought_to_one_pace(
    captures: tuple[int, int], more: tuple[dict[str, Any], dict[str, Any]], pace: float
) -> None:
    sides = side(captures=captures[0], **more[0]), side(captures=captures[1], mm_us=20, **more[1])
    found = axis(*sides)
    assert (found.pace, found.captures) == (pace, captures)
    assert (found.low is None) is (captures != (3, 3))
    measured = all(one.get("measured", False) for one in more)
    assert (found.measured, found.predicted) == (measured, not measured and "predicted" not in more[0])


@pytest.mark.parametrize(
    ("new", "word", "needed"),
    [
        (side(1_200), Word.UNKNOWN, 0.21),
        (side(1_220), Word.SLOWER, 0.21),
        (side(1_200, mm_us=10.1), Word.SLOWER, 0.10),  # brought to one pace
        (side(1_200, mm_us=10.1, recorded=("stacks",)), Word.UNKNOWN, 0.21),  # which costs time itself
        (side(1_200, gpu="H100", low_ns=1_000), Word.UNKNOWN, 0.21),
        (side(1_300, gpu="H100", low_ns=1_000), Word.UNKNOWN, 0.30),
        (side(1_300, gpu="H100", low_ns=1_250), Word.SLOWER, 0.21),
        (side(700, gpu="H100", high_ns=1_050), Word.UNKNOWN, 0.50),  # of the quicker one, the upper end
    ],
)
def test_how_far_two_recordings_must_be_apart(new: Captures, word: Word, needed: float) -> None:
    found = axis(side(1_000), new, changed=True)
    assert (found.word, round(found.needed, 6)) == (word, needed)


@pytest.mark.parametrize("missing", [{"ns": 0}, None])
def test_without_a_step_on_either_side_there_is_no_axis(missing: dict[str, int] | None) -> None:
    none = side(0)
    if missing is None:
        none.together.step = None  # type: ignore[misc]
    assert step_axis(none, side(), None, False) is None
    assert step_axis(side(), none, None, False) is None


def test_interval_of_many_captures_is_half_the_needed_width() -> None:
    found = axis(side(1_000, captures=3), side(1_100, captures=3))
    assert found.low == found.high == pytest.approx(0.1)
    assert (found.word, found.needed) == (Word.SLOWER, 0.01)  # no step is known better
