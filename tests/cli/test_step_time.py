"""`--step-ms`: what is given is told as such, and doubted where the trace speaks against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import call

TRACE = (
    Path(__file__).parents[2] / "fixtures" / "exposed-copy" / "bad.json.gz"
)  # 3.39 ms a step, 3.29 ms busy


@pytest.mark.parametrize(
    ("given", "doubt"),
    [
        ("18.3", "warning: --step-ms 18.3: a step takes only 3.39 ms even with the profiler; is it in ms"),
        ("0.25", "warning: --step-ms 0.25: the GPU alone is busy for 3.26 ms of each step; is it in ms"),
        ("0.5", "warning: --step-ms 0.5: the GPU alone is busy for 3.26 ms of each step; is it in ms"),
    ],
)
def test_a_step_that_cannot_be_is_doubted(given: str, doubt: str, tmp_path: Path) -> None:
    assert doubt in call("diagnose", TRACE, "--step-ms", given).stderr
    page = tmp_path / "report.html"
    assert doubt in call("report", TRACE, "-o", page, "--step-ms", given).stderr


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
