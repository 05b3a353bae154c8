"""A launch-bound step names the part that launches."""

from __future__ import annotations

from tests.rules.launches import Shared
from tests.rules.programs import found
from tests.support.cached_reports import selected
from tests.support.launching_programs import rollout


def test_a_loop_with_branches_is_named_by_its_repeats_and_ops() -> None:
    made = rollout(16, ("aten::mul", "aten::linear", "aten::tanh"))
    (one,) = found(made.trace, "launch-bound")
    assert "about 16 repetitions of one sequence of ops (a loop or layers; about 3 ops each: " in one.message
    assert one.evidence["loop_launches"] >= 48
    assert "stack their inputs and run them as one batch." in one.advice


def test_ops_that_come_in_no_order_are_no_loop() -> None:
    names = tuple(f"aten::op{number}" for number in range(60))
    (one,) = found(rollout(1, names).trace, "launch-bound")
    assert "loop" not in one.evidence
    assert "the CPU launches 6" in one.message


def test_ops_that_are_not_in_each_repeat_are_no_loop(shared: Shared) -> None:
    """Two convolutions between ten gradients that are stored: what comes ten times launches nothing."""
    (one,) = selected(shared("real/cnn_lab.eager"), "launch-bound").findings
    assert "loop" not in one.evidence


def test_line_with_few_launches_does_not_name_the_loop(shared: Shared) -> None:
    (one,) = selected(shared("slowdown/decode.stack"), "launch-bound").findings
    assert one.evidence["loop"].endswith(")")
    (one,) = selected(shared("pairs4/small_h2d.bad"), "launch-bound").findings
    assert one.evidence["loop"].endswith("at corpus4.py(36): step")


def test_a_cache_that_grows_is_to_be_of_a_fixed_size(shared: Shared) -> None:
    (one,) = selected(shared("slowdown/decode.stack"), "launch-bound").findings
    assert "cache_implementation='static'" in one.advice
