"""Batches that are padded beyond their longest sequence, where steps differ from each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.rules.kernel_programs import by_step, changed, found, program
from tests.rules.test_padded_batch import speech, tokenised
from traceanalyzer import Trace

WORK_US = 1_000  # on padded tensors in a step of `speech`


def with_longest(lengths: Sequence[int]) -> Trace:
    """Steps of which each has another longest sequence; 0 for one without a loss."""

    def change(event: dict[str, Any], step: int) -> None:
        if event["name"] == "aten::_ctc_loss":
            event["args"]["Concrete Inputs"][2] = f"[{lengths[step]},40,30,20]"
            event["name"] = "aten::_ctc_loss" if lengths[step] else "aten::square"

    return by_step(program(speech(), steps=len(lengths)), change)


def test_each_step_is_held_against_its_own_longest_sequence() -> None:
    """An eighth of 512 frames, two eighths and so on: three quarters in the last of six steps."""
    (one,) = found(with_longest([64, 128, 192, 256, 320, 384]), "padded-batch")
    assert one.cost_ns == pytest.approx(WORK_US * 1_000 * (6 - 21 / 8), rel=0.001)
    assert (one.evidence["longest"], one.evidence["most"]) == (224, 384)


@pytest.mark.parametrize(("longest", "said"), [(409, True), (410, False)])
def test_one_step_that_fills_more_than_four_fifths_is_enough_to_say_nothing(longest: int, said: bool) -> None:
    assert bool(found(with_longest([64, 128, longest, 64]), "padded-batch")) is said


def test_steps_without_a_loss_are_neither_counted_nor_shortened() -> None:
    assert found(with_longest([128, 0, 0, 0, 0, 128]), "padded-batch") == []
    (one,) = found(with_longest([128, 0, 128, 0, 0, 128]), "padded-batch")
    assert one.cost_ns == pytest.approx(WORK_US * 1_000 * 3 * 3 / 4, rel=0.001)
    assert (one.evidence["longest"], one.evidence["most"]) == (128, 128)


def test_the_longest_sequence_of_several_losses_of_a_step_counts() -> None:
    (one,) = found(
        program([*speech(lengths=[200, 9, 9, 9]), *speech(lengths=[9, 9, 9, 300])]), "padded-batch"
    )
    assert (one.evidence["longest"], one.evidence["most"]) == (300, 300)


def test_copies_from_the_host_take_no_longer_for_padding() -> None:
    def send(event: dict[str, Any]) -> None:
        if event.get("cat") == "kernel" and event["dur"] == 300:
            event.update(cat="gpu_memcpy", name="Memcpy HtoD (Pageable -> Device)")

    (one,) = found(changed(program(speech()), send), "padded-batch")
    assert one.evidence["gpu_share"] == pytest.approx(700 / 1_150)


@pytest.mark.parametrize(("lengths", "said"), [((70, 90, 70, 90), False), ((70, 90, 80, 90), True)])
def test_three_lengths_are_no_border(lengths: tuple[int, ...], said: bool) -> None:
    assert bool(found(program(tokenised(*lengths)), "padded-batch")) is said


def test_steps_that_pad_unlike_numbers_of_tensors_tell_no_size_of_a_batch() -> None:
    def leave_out(event: dict[str, Any], step: int) -> None:
        if event["name"] == "aten::constant_pad_nd" and step == 2 and event["args"]["Input Dims"][0] == [90]:
            event["name"] = "aten::clone"

    trace = program(tokenised(70, 90, 40, 128))
    assert len(found(trace, "padded-batch")) == 1
    assert found(by_step(trace, leave_out), "padded-batch") == []


def test_a_sequence_is_padded_behind_dimensions_of_one() -> None:
    def reshape(event: dict[str, Any]) -> None:
        if event["name"] == "aten::constant_pad_nd":
            event["args"]["Input Dims"][0][:0] = [1, 1]

    (one,) = found(changed(program(tokenised(70, 90, 40, 128)), reshape), "padded-batch")
    assert one.evidence["longest"] == 128
