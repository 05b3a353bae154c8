"""Findings that name the region of code that is responsible, with its share and what its remedy saves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.region_programs import US, CodeProgram
from traceanalyzer import Finding, diagnose

Shared = Callable[[str], Path]


def first_of(program: CodeProgram) -> Finding:
    return diagnose(program.trace.load(), select=["launch-bound", "host-hotspot"]).findings[0]


def with_hook(name: str = "hook") -> CodeProgram:
    """Five steps of 20 layers, after each of which a function launches four small kernels."""
    program = CodeProgram()
    for _ in range(5):
        for _ in range(20):
            program.ops(["aten::linear"] * 3)
            begin = program.now
            program.ops(["aten::mean", "aten::std", "aten::abs", "aten::amax"])
            program.function(name, begin)
        program.end_step()
    return program


def test_a_function_beside_the_layers_is_named_with_its_share() -> None:
    finding = first_of(with_hook())
    assert (finding.rule, finding.cause, finding.by) == ("launch-bound", "region", "train.py(10): hook()")
    assert finding.evidence["region_launches"] == 80
    assert finding.evidence["part_share"] == pytest.approx(4 / 7, abs=0.08)
    assert finding.saving is not None
    assert finding.saving.share == pytest.approx(4 / 7, abs=0.08)


def test_a_function_of_another_package_is_not_named() -> None:
    program = with_hook()
    for event in program.trace.events:
        event["name"] = event["name"].replace("train.py", "library/model.py")
    begin = program.trace.events[0]["ts"] * US
    program.trace.python("train.py(1): main", int(begin), program.now, python_id=90_000, tid=1)
    assert first_of(program).cause != "region"


def test_repeats_that_are_the_whole_step_are_the_program() -> None:
    program = CodeProgram()
    for _ in range(5):
        program.ops(["aten::mul", "aten::add", "aten::tanh"] * 40)
        program.end_step()
    assert first_of(program).cause == "graph"


def test_repeats_beside_layers_leave_the_work_of_one() -> None:
    program = CodeProgram()
    for _ in range(5):
        program.ops(["aten::linear"] * 40)
        program.ops(["aten::mul", "aten::add", "aten::copy_"] * 30)
        program.end_step()
    finding = first_of(program)
    assert finding.by == "30 x mul, add, copy_"
    assert finding.advice.startswith("Use torch._foreach_ ops")
    assert finding.saving is not None
    assert finding.saving.share == pytest.approx(0.69 * 29 / 30, abs=0.08)


@pytest.mark.parametrize(
    ("name", "rule", "region", "least", "most"),
    [
        ("sixth/off_policy", "host-hotspot", "sample", 0.61, 0.85),
        ("seventh/denoise_unet", "launch-bound", "hook()", 0.28, 0.52),
        ("sixth/gan_two", "launch-bound", "120 x mv", 0.37, 0.61),
        ("seventh/char_rnn", "launch-bound", "64 x abs", 0.40, 0.64),
        ("fifth/aug_images", "launch-bound", "64 x select", 0.54, 0.78),
        ("sixth/lm_small_train", "launch-bound", "24 x to", 0.39, 0.63),
        ("seventh/vit_layers", "launch-bound", "148 x _foreach_add_", 0.03, 0.27),
        ("seventh/photo_train", "launch-bound", "__torch_function__()", 0.22, 0.46),
        ("sixth/mlp_finetune", "host-hotspot", "AdamW.step", 0.60, 0.84),
    ],
)
def test_recorded_regions_save_about_what_was_measured(
    shared: Shared, name: str, rule: str, region: str, least: float, most: float
) -> None:
    """The range is 12 points around the measured saving of the fix."""
    finding = diagnose(shared(f"{name}.bad")).findings[0]
    assert finding.rule == rule
    assert region in str(finding.by)
    assert finding.saving is not None
    assert least <= finding.saving.share <= most


def test_a_region_is_in_the_json_of_a_finding(shared: Shared) -> None:
    finding = diagnose(shared("sixth/lm_small_train.bad")).findings[0]
    assert json.loads(json.dumps(dict(finding.evidence)))["region"].startswith("24 x to")
