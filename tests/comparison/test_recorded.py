"""What one recording is stored as, and rows of the ledger."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.comparison.built_sides import axis, of, snapshot
from tests.comparison.programs import ADDED, MM, US, built
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.comparison import compare as recorded
from traceanalyzer.comparison.compare import chosen_steps, known_faults, main_device, step_time
from traceanalyzer.comparison.result import DeviceAxis, FaultChange, Row, Word, rows_frame
from traceanalyzer.comparison.work_tables import Chosen, put_counts, spread_samples
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.report import Fault
from traceanalyzer.model.step_times import Saving
from traceanalyzer.render.data.comparison import COLUMNS, ledger_rows, ledger_text
from traceanalyzer.rule.registry import Kind
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.version import __version__

INFO, LOW, HIGH = Severity.INFO, Severity.LOW, Severity.HIGH


@pytest.mark.parametrize(
    ("devices", "lengths", "expected"),
    [([0, 1, 1], [10, 4, 5], 0), ([0, 1, 1], [10, 4, 7], 1), ([3, 1], [5, 5], 1), ([7], [0], 7)],
)
def test_the_device_with_most_work_is_compared(devices: list[int], lengths: list[int], expected: int) -> None:
    """Of equal ones the first."""
    start = np.arange(len(devices)) * 100
    work: Any = SimpleNamespace(device=np.array(devices), start_ns=start, end_ns=start + np.array(lengths))
    assert main_device(work) == expected


def steps_of(count: int, **changes: Any) -> Any:
    """Steps that are all warm, whole and launch something."""
    usual: dict[str, Any] = {"steady": [True] * count, "cut": [False] * count, "of_work": list(range(count))}
    usual |= {"phase": [None] * count, "batch": [-1] * count} | changes

    class Steps(SimpleNamespace):
        def __len__(self) -> int:
            return count

    return Steps(**{name: one if name == "phase" else np.array(one) for name, one in usual.items()})


@pytest.mark.parametrize(
    ("steps", "places"),
    [
        (steps_of(4), [-1, 0, 1, 2]),  # the first is left out
        (steps_of(1), [0]),
        (steps_of(4, steady=[False, True, True, True]), [-1, -1, 0, 1]),
        (steps_of(4, cut=[False, False, False, True]), [-1, 0, 1, -1]),
        (steps_of(4, of_work=[0, 1, 1, 3, -1]), [-1, 0, -1, 1]),  # the third launches nothing
        (steps_of(3, steady=[False] * 3), [-1, 0, 1]),  # none is warm: all
        (steps_of(3, steady=[False, True, False]), [-1, 0, -1]),
        (steps_of(5, phase=["decode"] * 3 + ["prefill"] * 2), [-1, 0, 1, -1, -1]),
        (steps_of(5, phase=["prefill", "decode"] * 2 + ["prefill"]), [-1, -1, 0, -1, 1]),
        (steps_of(4, batch=[8, 4, 4, 8]), [-1, -1, 0, -1]),  # as often: the smaller
        (steps_of(4, batch=[8, 4, 8, 8], phase=["a", "a", "a", "b"]), [-1, -1, 0, -1]),
    ],
)
def test_warm_whole_steps_of_the_commonest_kind_are_compared(steps: Any, places: list[int]) -> None:
    work: Any = SimpleNamespace()
    chosen = chosen_steps(work, steps, 3)
    assert chosen.place.tolist() == [*places, -1]
    assert (chosen.count, chosen.device) == (sum(at >= 0 for at in places), 3)


@pytest.mark.parametrize(
    ("device_ns", "cpu_ns", "marked", "each"),
    [
        ((9, 10, 20, 60), (9, 10, 20, 30), True, (10, 20, 60)),
        ((9, 10, 20, 30), (9, 10, 20, 60), True, (10, 20, 60)),
        ((99, 10, 20, 30), (9, 10, 20, 60), True, (10, 20, 60)),  # the first is not chosen
        ((9, 1, 2, 3), (9, 10, 20, 60), False, (1, 2, 3)),  # one window: the device's time
    ],
)
def test_other_step_is_the_mean_of_the_longer_side(
    device_ns: tuple[int, ...], cpu_ns: tuple[int, ...], marked: bool, each: tuple[int, ...]
) -> None:
    steps: Any = SimpleNamespace(marked=marked)
    steps.durations_ns = lambda device=None: np.array(cpu_ns if device is None else device_ns)
    head: Any = SimpleNamespace(step=None)
    told = step_time(steps, Chosen(np.array([-1, 0, 1, 2, -1]), 3, 0), head, None)
    assert told.each_ns == each
    assert told.ns == told.low_ns == told.high_ns == told.recorded_ns == round(sum(each) / 3)
    assert not told.predicted


@pytest.mark.parametrize("replayable", [True, False])
def test_replayable_step_has_several_cpu_paces(replayable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as quick a CPU as it was is half of the slowdown that the replay takes for typical."""
    asked: list[float] = []

    def replayed(program: object, slowdowns: list[float]) -> Any:
        asked.extend(slowdowns)
        return [SimpleNamespace(ns=at) for at in range(len(slowdowns))]

    monkeypatch.setattr(recorded, "run_at", replayed)
    monkeypatch.setattr(recorded, "EditedProgram", lambda program: program)
    steps: Any = SimpleNamespace(marked=True, durations_ns=lambda device=None: np.array([30, 40]))
    replays = SimpleNamespace(slowdown=SimpleNamespace(typical=2.0))
    base = [SimpleNamespace(cpu_ns=7.6)]
    forecast: Any = SimpleNamespace(program=None, replays=replays, base=base)
    said = SimpleNamespace(unprofiled_ns=20, low_ns=18, high_ns=25, bound="cpu")
    head: Any = SimpleNamespace(step=said if replayable else None)
    told = step_time(steps, Chosen(np.array([0, 1, -1]), 2, 0), head, forecast)
    assert (told.recorded_ns, told.each_ns, told.predicted) == (35, (30, 40), replayable)
    if not replayable:
        assert (told.ns, told.paces, asked) == (35, (), [])
        return
    assert (told.ns, told.low_ns, told.high_ns, told.cpu_ns, told.bound) == (20, 18, 25, 8, "cpu")
    assert asked == pytest.approx([0.8, 1.1, 1.5, 2.0, 2.66, 3.6, 5.0])
    assert told.paces == ((0.4, 0), (0.55, 1), (0.75, 2), (1.0, 3), (1.33, 4), (1.8, 5), (2.5, 6))


def finding(rule: str, cause: str = "", by: str | None = None) -> Any:
    return SimpleNamespace(rule=rule, cause=cause, by=by)


def saving(share: float) -> Saving:
    return Saving(round(share * 1_000), 1, 2, share, share - 0.1, share + 0.1, "replayed")


@pytest.mark.parametrize(
    ("severity", "saved", "choice", "told"),
    [
        (LOW, None, False, True),
        (HIGH, 0.5, False, True),
        (INFO, None, False, False),
        (INFO, None, True, False),  # nothing tells what it is worth
        (INFO, 0.3, False, False),
        (INFO, 0.3, True, True),
        (INFO, -0.009, False, False),
        (INFO, -0.01, False, True),  # what does not pay
    ],
)
def test_listed_choices_and_unprofitable_fixes_are_shown(
    severity: Severity, saved: float | None, choice: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "kind_of", lambda rule, cause: Kind.CHOICE if choice else Kind.FAULT)
    fault = Fault("F1", "title", None if saved is None else saving(saved), severity, (1,))
    head: Any = SimpleNamespace(faults=[fault])
    assert bool(known_faults(head, [finding("r")])) is told


def test_fault_is_known_by_first_finding_and_all_rules() -> None:
    findings = [finding("b", "late"), finding("a", "early", "train.py(3)"), finding("b"), finding("c")]
    faults = [
        Fault("F1", "", saving(0.25), HIGH, (2, 1, 3)),
        Fault("F2", "", None, LOW, (1, 4)),
        Fault("F3", "", None, LOW, (3,)),
        Fault("F4", "", None, LOW, ()),
    ]
    head: Any = SimpleNamespace(faults=faults)
    first, second, third = known_faults(head, findings)
    assert (first.key, first.rules, first.title) == ("a|early|train.py(3)", ("a", "b"), "a: train.py(3)")
    assert (first.severity, first.share, first.low_share, first.high_share) == ("high", 0.25, 0.15, 0.35)
    assert first.step_ns == 250
    assert (second.key, second.rules, second.title) == ("b|late|", ("b", "c"), "b: late")
    assert (second.severity, second.share) == ("low", None)
    assert (third.key, third.title) == ("b||", "b")


def test_samples_are_spread_over_all_executions() -> None:
    """Of 32 every other, from the first on; of few all, in the order in which they ran."""
    number = np.array([*[0] * 16, 1, 1, *[0] * 16, 1, 2])
    dur = np.arange(len(number)) * 10
    many = dur[number == 0]
    found = spread_samples(number, dur, 4)
    assert found == [many[::2].tolist(), dur[number == 1].tolist(), dur[number == 2].tolist(), []]
    assert spread_samples(number[number == 0][:16], many[:16], 1) == [many[:16].tolist()]


def test_a_step_without_any_counts_for_the_least_of_all() -> None:
    """In four steps: two, three and none of the first; one each of the second."""
    number, step = np.array([0, 0, 1, 0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1, 1, 2, 3])
    table = pd.DataFrame(index=range(2))
    put_counts(table, number, step, 4)
    assert table.to_dict("list") == {"count": [1.25, 1.0], "least": [0, 1], "most": [3, 1]}


def test_counters_and_idle_time_are_those_of_a_step() -> None:
    one = snapshot(built([MM, ADDED], syncs=1, copies=2))
    totals = one.tables["totals"].set_index("counter")
    assert totals["count"].to_dict() == totals["least"].to_dict() == totals["most"].to_dict()
    counts = totals["count"]
    assert (counts["kernels"], counts["d2d copies"], counts["d2h copies"]) == (2, 2, 1)
    assert (counts["d2d bytes"], counts["d2h bytes"], counts["FLOPs"]) == (2 << 20, 4, 2 * 512**3)
    assert (counts["launches"], counts["synchronisations"], counts["ops"]) == (2, 1, 8)
    calls = one.tables["calls"]
    outer = calls[calls["counter"] == "ops"].set_index("name")["count"].to_dict()
    assert outer == {"aten::mm": 1, "aten::add": 1, "aten::clone": 2, "aten::item": 1}
    assert one.step is not None
    work, idle = one.tables["work"], one.tables["idle"]
    assert work["exposed_ns"].sum() + idle["ns"].sum() == pytest.approx(one.step.recorded_ns, rel=0.02)


def test_drawn_step_has_median_length_and_longest_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 1.1, 1.3, 1.2 and 1.4 ms, the first cold: of the rest that of 1.3 ms."""
    trace = TraceBuilder()
    begin = 0
    for step, long_us in enumerate((500, 700, 600, 800)):
        for at, (offset, dur, stream) in enumerate(((0, long_us, 7), (100, 50, 9), (900, 200, 7))):
            number = 10 * step + at + 1
            trace.launch("cudaLaunchKernel", begin + at * 10 * US, 3 * US, number)
            trace.kernel(begin + (50 + offset) * US, dur * US, number, stream=stream, name=f"k{step}{at}")
        length = (600 + long_us) * US
        trace.step(step, begin, length - 1)
        begin += length
    analysis = Analysis(trace.load())
    work, steps = analysis.index(DeviceWork), analysis.index(Steps)
    chosen = Chosen(np.array([-1, 0, 1, 2, -1]), 3, 0)
    lengths = steps.durations_ns(0).tolist()
    middle = lengths.index(sorted(lengths[1:])[1])
    drawn = recorded.strip_of(analysis.trace, work, steps, chosen)
    assert (drawn.length_ns, drawn.left_out) == (lengths[middle], 0)
    assert [(one.name, one.stream, one.dur_ns // US) for one in drawn.pieces] == [
        (f"k{middle}0", 0, (500, 700, 600, 800)[middle]),
        (f"k{middle}1", 1, 50),
        (f"k{middle}2", 0, 200),
    ]
    assert [one.start_ns - drawn.pieces[0].start_ns for one in drawn.pieces] == [0, 100 * US, 900 * US]
    both = recorded.strip_of(analysis.trace, work, steps, Chosen(np.array([-1, 0, 1, -1, -1]), 2, 0))
    assert both.length_ns == min(lengths[1:3])  # of two the shorter
    monkeypatch.setattr(recorded, "_MAX_PIECES", 2)
    short = recorded.strip_of(analysis.trace, work, steps, chosen)
    assert ([one.name for one in short.pieces], short.left_out) == ([f"k{middle}0", f"k{middle}2"], 1)


MS = 1_000_000


def fault(said: float | None, got: float | None, **more: Any) -> FaultChange:
    told: dict[str, Any] = {"low_share": 0.1, "high_share": 0.4} | more
    rules, title = ("implicit-sync", "launch-bound"), "implicit-sync: aten::item"
    return FaultChange("gone", rules, title, "high", said, got_share=got, base_ns=None, new_ns=None, **told)


def compared(*faults: FaultChange, real_ms: float | None = 0.0, difference: float = -0.4, **more: Any) -> Any:
    """A step of 100 ms, and how much more real work the device has in NEW."""
    device = None if real_ms is None else DeviceAxis(100 * MS, 100 * MS, round(real_ms * MS), Word.SAME, {})
    step = axis(Word.FASTER, difference, base_bound="cpu", new_bound="gpu", **more)
    names, gpus = ("train.bad.json.gz", "z.json"), ("H100", "H200")
    base = SimpleNamespace(names=names, gpus=gpus, recorded=("shapes", "stacks"))
    new = SimpleNamespace(names=("fixed.json",), gpus=("A100",), recorded=("shapes",))
    axes = SimpleNamespace(step=step, device=device)
    return SimpleNamespace(axes=axes, faults=faults, base=base, new=new)


def test_ledger_row_is_the_bases_and_its_largest_rule() -> None:
    (row,) = ledger_rows(compared(fault(0.25, 0.33333)), 0.01234)
    said = {"said": "0.2500", "low": "0.1000", "high": "0.4000", "true": "0.3333", "spread": "0.0123"}
    fixed = {"rule": "implicit-sync", "fault": "implicit-sync: aten::item", "bound": "cpu", "kind": "host"}
    source = {"program": "train", "source": "compare", "gpu": "H100, H200", "commit": __version__}
    assert row == source | fixed | said | {"stacks": "yes", "fitted": "yes"}
    assert tuple(row) == COLUMNS


def test_what_nobody_knows_is_left_empty_in_the_ledger() -> None:
    found = compared(fault(0.2, 0.3, low_share=None, high_share=None), measured=True, predicted=False)
    found.axes.step = axis(Word.FASTER, -0.4, base_bound=None, measured=True)
    found.base.recorded = ("shapes",)
    (row,) = ledger_rows(found, None)
    assert [row[name] for name in ("bound", "low", "high", "spread")] == ["", "0.0000", "0.0000", ""]
    assert [row[name] for name in ("stacks", "fitted")] == ["no", "no"]


def test_only_faults_with_a_known_saving_have_a_row() -> None:
    faults = fault(0.2, None), fault(None, 0.3), fault(0.1, 0.0), fault(-0.1, -0.2)
    rows = [(row["said"], row["true"]) for row in ledger_rows(compared(*faults), None)]
    assert rows == [("0.1000", "0.0000"), ("-0.1000", "-0.2000")]
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
    slower = row(Word.SLOWER, *sides, ratio=1.5, p=0.01, delta_ns=30, note="n")
    frame = rows_frame([slower, row(Word.NEW, None, sides[1])])
    assert frame["word"].tolist() == ["slower", "new"]
    assert [type(word) for word in frame["word"]] == [str, str]
    assert frame.dtypes["delta_ns"] == "int64"
    names = ("count", "ns", "exposed_ns", "median_ns")
    first, second = frame.to_dict("records")
    assert [first[f"base_{name}"] for name in names] == [2, 100, 60, 50]
    assert [first[f"new_{name}"] for name in names] == [4, 300, 90, 75]
    assert (first["op"], first["ratio"], first["p"]) == ("aten::mm", 1.5, 0.01)
    assert (first["delta_ns"], first["note"]) == (30, "n")
    assert all(math.isnan(second[name]) for name in [*(f"base_{name}" for name in names), "ratio", "p"])


def test_a_frame_of_no_rows_has_the_same_columns() -> None:
    empty, full = rows_frame([]), rows_frame([row(Word.SAME, of(), of())])
    assert empty.columns.tolist() == full.columns.tolist()
    assert empty.dtypes["ratio"] == empty.dtypes["base_ns"] == "float64"
    assert empty.dtypes["delta_ns"] == "int64"
