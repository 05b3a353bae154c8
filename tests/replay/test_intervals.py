"""A saving and its interval from planted replays, with numbers worked out by hand."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traceanalyzer.model.step_times import Saving, StepEstimate
from traceanalyzer.replay import saving
from traceanalyzer.replay.edits import Drop, Edit, Insert, Scale, SplitAcrossRanks
from traceanalyzer.replay.run import Bound, Step
from traceanalyzer.replay.saving import Forecast, possible_bounds

ROOT = (0.4 * 0.6) ** 0.5  # of a share of 0.4


class _Sample(SimpleNamespace):
    text = "2 of 3 steps"

    def __len__(self) -> int:
        return 2


def step(ns: float, bound: Bound = "gpu", gpu: float = 0.0) -> Step:
    return Step(ns, 0.0, gpu, 0.0, bound)


def steps(*ns: float, bound: Bound = "gpu", gpu: float = 0.0) -> tuple[Step, ...]:
    return tuple(step(one, bound, gpu) for one in ns)


def forecast(
    base: Sequence[Step], before: Sequence[Step], after: Sequence[Step], *, driver: bool = False, **left: Any
) -> Forecast:
    """Two sampled steps with one segment; two streams with 600 and 200 ns of compute, and 900 of communication."""
    work = SimpleNamespace(
        communication=np.array([False, False, False, True]), stream=np.array([0, 0, 1, 0]),
        dur_ns=np.array([400.0, 200.0, 200.0, 900.0]),
    )  # fmt: skip
    segments = SimpleNamespace(driver=np.array([driver]))
    program = SimpleNamespace(sample=_Sample(part=1.0), segments=segments, work=work)
    edited = SimpleNamespace(
        unsteady_ns=0.0, kept=np.array([False]), quickened_ns=0.0, waits=np.ones(1, bool), alive=np.ones(4, bool),
        stream=work.stream, dur_ns=work.dur_ns, gap_ns=np.array([10.0, 10.0, 0.0, 0.0]),
    )  # fmt: skip
    vars(edited).update(left)
    known = {(): base, (1,): before}
    replays: Any = SimpleNamespace(
        program=program,
        steps=lambda edits, left=None: known[()] if not edits else before if left is None else after,
        edited=lambda edits: edited,
    )
    return Forecast(replays, StepEstimate(1_300, 1_000, 800, 1_200, "gpu", "", ()))


BASE, AFTER = steps(1_000, 1_100, 900), steps(600, 770, 450)  # shares of 0.4, 0.3 and 0.5
WORK: list[Edit] = [Scale([1], 0.5)]
CPU: list[Edit] = [Drop([0])]


def shares(found: Saving) -> tuple[float, float, float]:
    return found.share, found.low_share, found.high_share


def test_interval_covers_replays_and_known_saving_errors() -> None:
    """Below 0.235 and above 0.266 times the deviation; 0.005 from run to run, and above 0.02 of what is left."""
    found = forecast(BASE, BASE, AFTER).saving(WORK)
    low, high = 0.4 - 0.235 * ROOT - 0.005, 0.4 + 0.266 * ROOT + 0.005 + 0.02 * 0.6
    assert shares(found) == pytest.approx((0.4, low, high))
    assert (found.step_ns, found.low_ns, found.high_ns) == (400, round(1_000 * low), round(1_000 * high))
    assert not found.beyond
    assert found.basis == "replayed without it: 2 of 3 steps, bound by the GPU then"


def test_ends_are_no_nearer_than_replays_at_other_slowdowns() -> None:
    found = forecast(BASE, BASE, steps(600, 1_045, 180)).saving(WORK)
    assert shares(found)[1:] == pytest.approx((0.05, 0.8))


@pytest.mark.parametrize(
    ("edits", "below", "above"),
    [
        ([Scale([1], 0.5)], 0.235, 0.266),
        ([Scale([1], 0.5), SplitAcrossRanks([1], 0.5)], 0.37, 0.37),  # one of several is enough
    ],
)
def test_of_work_that_moves_to_others_less_is_known(edits: list[Edit], below: float, above: float) -> None:
    found = forecast(BASE, BASE, AFTER).saving(edits)
    assert shares(found)[1:] == pytest.approx((0.4 - below * ROOT - 0.005, 0.4 + above * ROOT + 0.017))


def test_what_is_rare_is_as_uncertain_as_its_steps_differ() -> None:
    """260 ns of the 1,300 of a step as recorded."""
    found = forecast(BASE, BASE, AFTER, unsteady_ns=260.0).saving(WORK)
    assert shares(found)[1:] == pytest.approx((0.2, 0.6))


@pytest.mark.parametrize(("before", "after"), [("cpu", "gpu"), ("gpu", "cpu"), ("wait", "gpu")])
def test_cpu_bound_saving_allows_for_another_process(before: Bound, after: Bound) -> None:
    """Before or after the fix."""
    base, left = steps(1_000, 1_100, 900, bound=before), steps(600, 770, 450, bound=after)
    high = forecast(base, base, left).saving(WORK).high_share
    assert high == pytest.approx(0.4 + 0.266 * ROOT + 0.005 + 0.08 * 0.6)


@pytest.mark.parametrize(
    ("bound", "gpu", "low"),
    [
        ("gpu", 700.0, 0.4 - 0.235 * ROOT - 0.005),  # it is the GPU's own time
        ("cpu", 500.0, 0.4 - 0.235 * ROOT - 0.005),
        ("cpu", 640.0, 0.2),  # of the shortest step, 800 ns, the device idles a fifth
        ("wait", 640.0, 0.2),
        ("communication", 640.0, 0.2),
        ("cpu", 790.0, 0.0),  # less idle time nobody can be sure of
    ],
)
def test_no_more_is_sure_than_what_the_device_idles_once_fixed(bound: Bound, gpu: float, low: float) -> None:
    base = steps(1_000, 1_100, 900, bound=bound)
    assert forecast(base, base, steps(600, 770, 450, gpu=gpu)).saving(WORK).low_share == pytest.approx(low)


def test_fixes_on_top_of_others_save_shares_of_the_step_as_it_is() -> None:
    """From 900 to 500 of 1,000, and 990 to 660 of 1,100, and 810 to 360 of 900."""
    found = forecast(BASE, steps(900, 990, 810), steps(500, 660, 360)).saving(WORK, given=[Drop([3])])
    assert shares(found)[0] == pytest.approx(0.4)
    assert found.beyond


@pytest.mark.parametrize(
    ("edits", "left", "busy"),
    [
        (CPU, {}, 620 / 2),  # with the gaps of what is queued
        (WORK, {}, 600 / 2),
        (WORK, {"dur_ns": np.array([400.0, 150.0, 200.0, 900.0])}, (400 - 80) / 2),  # a fifth of the rest may go
        (WORK, {"dur_ns": np.array([400.0, 200.0, 150.0, 900.0])}, (600 - 120) / 2),
        (CPU, {"alive": np.array([True, False, True, True])}, 410 / 2),  # the gap before it goes, too
        ([Insert([0], 1.0), *CPU], {}, 600 / 2),  # what takes their place may wait less
        (CPU, {"stream": np.array([1, 0, 1, 0])}, 210 / 2),  # what moves is beside the rest
    ],
)
def test_step_is_no_shorter_than_device_work(edits: list[Edit], left: dict[str, Any], busy: float) -> None:
    """Of the longest plausible step, 1,200 ns; communication may be over at once."""
    known = forecast(BASE, BASE, AFTER, **left)
    assert known._surely_busy_ns(known.replays.edited(edits), edits) == pytest.approx(busy)
    wide = Forecast(known.replays, known.step, wider=9.0).saving(edits)
    assert wide.high_share == pytest.approx(1 - busy / 1_200)


@pytest.mark.parametrize(("kept", "high"), [(False, 1.0), (True, 1 - 310 / 1_200)])
def test_driver_calls_may_have_taken_longer_unprofiled(kept: bool, high: float) -> None:
    known = forecast(BASE, BASE, AFTER, driver=True, kept=np.array([kept]))
    assert Forecast(known.replays, known.step, wider=9.0).saving(CPU).high_share == pytest.approx(high)


@pytest.mark.parametrize(("quickened", "told"), [(10.0, False), (12.0, True)])
def test_cold_work_is_reported_above_the_step_variation(quickened: float, told: bool) -> None:
    """In two steps; a two-hundredth of 1,000 ns is 5 of each."""
    assert ("cold" in forecast(BASE, BASE, AFTER, quickened_ns=quickened).saving(WORK).basis) is told


def test_no_edits_save_nothing_with_the_steps_certainty() -> None:
    assert shares(forecast(BASE, BASE, BASE).saving([])) == pytest.approx((0, -0.005, 0.005))


def test_the_fixed_step_has_the_ends_of_the_saving() -> None:
    known = forecast(BASE, BASE, AFTER)
    said, fixed = known.saving(WORK), known.fixed(WORK)
    assert (fixed.low_ns, fixed.unprofiled_ns, fixed.high_ns) == (1_000 - said.high_ns, 600, 1_000 - said.low_ns)


@pytest.mark.parametrize(
    ("awaited", "traced", "told"),
    [
        (0.0, 2_000, (950, round(900 * 0.905), round(1_100 * 1.095))),
        (0.005, 900, (900, round(900 * 0.905), round(1_100 * 1.095))),  # recording makes no step shorter
        (0.004, 700, (700, 700, round(1_100 * 1.095))),
    ],
)
def test_step_interval_covers_its_replays_and_their_error(
    monkeypatch: pytest.MonkeyPatch, awaited: float, traced: int, told: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(saving, "_traced_ns", lambda *_: float(traced))
    monkeypatch.setattr(saving, "_wider", lambda *_: 1.5)
    planted = steps(950, 1_100, 900)
    monkeypatch.setattr(saving, "Replays", lambda *_: SimpleNamespace(steps=lambda edits: planted))
    slowed = SimpleNamespace(range=SimpleNamespace(typical=1.25, basis="planted"))
    program: Any = SimpleNamespace(
        segments=SimpleNamespace(slowed=slowed),
        sample=_Sample(left_out=0.3),
        awaited=awaited,
        waited_ns=0.0,
        timeline=SimpleNamespace(threads=None),
    )
    monkeypatch.setattr(saving, "slow_steps", lambda *_: None)
    monkeypatch.setattr(saving, "_loading_ns", lambda *_: 0.0)
    monkeypatch.setattr(saving, "EditedProgram", lambda _: None)
    monkeypatch.setattr(saving, "run", lambda *_: SimpleNamespace(ns=0.75 * traced))  # a quarter is not much
    nothing: Any = SimpleNamespace()
    found = Forecast.build(nothing, nothing, nothing, nothing, program)
    assert (found.step.unprofiled_ns, found.step.low_ns, found.step.high_ns) == told
    assert found.step.basis.startswith("2 of 3 steps replayed; slowdown 1.2, planted")
    assert ("for other ranks' launching" in found.step.basis) == (awaited >= 0.005)
    assert (found.step.traced_ns, found.wider) == (traced, 1.5)


@pytest.mark.parametrize(
    ("given_ms", "doubted"),
    [(1.43, None), (1.4301, "takes only 1.30 ms even"), (0.72, None), (0.7199, "alone is busy for 800 µs")],
)
def test_impossibly_long_or_short_step_is_doubted(given_ms: float, doubted: str | None) -> None:
    program = SimpleNamespace(least_gpu_ns=800_000.0)
    known: Any = SimpleNamespace(step=SimpleNamespace(traced_ns=1_300_000), program=program)
    said = Forecast.doubt(known, given_ms)
    assert said is None if doubted is None else doubted in str(said)


@pytest.mark.parametrize(
    ("gpu", "bounds"), [((950, 850, 950), ("gpu", "cpu")), ((950, 940, 910), ("cpu",)), ((850, 800, 899), ("cpu",))]
)
def test_bound_is_open_if_device_idles_once(gpu: tuple[int, int, int], bounds: tuple[Bound, ...]) -> None:
    base = tuple(Step(1_000, 0, one, 0, "cpu") for one in gpu)
    assert possible_bounds(base) == bounds  # type: ignore[arg-type]
