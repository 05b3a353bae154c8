"""`--step-ms`: what is given is told as such, and doubted where the trace speaks against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import call
from traceanalyzer import BadOption, diagnose

TRACE = (
    Path(__file__).parents[2] / "fixtures" / "exposed-copy" / "bad.json.gz"
)  # 3.39 ms a step, 3.29 ms busy


def test_a_step_longer_than_the_recorded_one_is_doubted(tmp_path: Path) -> None:
    doubt = "warning: --step-ms 18.3: a step takes only 3.39 ms even with the profiler; is it in ms"
    assert doubt in call("diagnose", TRACE, "--step-ms", "18.3").stderr
    page = tmp_path / "report.html"
    assert doubt in call("report", TRACE, "-o", page, "--step-ms", "18.3").stderr


@pytest.mark.parametrize("given", ["0.25", "0.25:3.3", "3.3,0.25"])
def test_a_step_shorter_than_the_gpu_is_busy_is_refused(given: str) -> None:
    with pytest.raises(BadOption, match=r"ms: the GPU alone is busy for 3\.26 ms of each step"):
        diagnose(TRACE, step_ms=given)


@pytest.mark.parametrize("given", ["3.2:3.4", "3.2,3.4,3.3"])
def test_several_times_of_a_step_give_a_range(given: str) -> None:
    said = " ".join(call("diagnose", TRACE, "--step-ms", given).stdout.split())
    assert "3.30 ms without the profiler, as you measured it (3.20 to 3.40)" in said


def test_a_step_that_can_be_is_told_as_measured() -> None:
    result = call("diagnose", TRACE, "--step-ms", "3.2")
    said = " ".join(result.stdout.split())
    assert (
        "Step 3.39 ms recorded (mean of 4 of 5 steps), 3.20 ms without the profiler, as you measured it"
        in said
    )
    assert "as you measured it Limit the GPU" in said
    assert "--step-ms" not in result.stderr
    assert "--step-ms" not in call("diagnose", TRACE).stderr
