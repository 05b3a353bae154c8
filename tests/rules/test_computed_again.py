"""Work that was done before, or that nobody reads, in recordings with execution traces."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.execution_traces import Call, Tensor, written
from tests.support.paths import SHARED
from tests.support.region_programs import cached_gradients
from traceanalyzer import Finding, diagnose, load
from traceanalyzer.model.finding import Confidence, Severity

FOLDER = SHARED / "dataflow"
RULES = ("computed-again", "computed-unused")
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="no shared traces")


def findings(name: str) -> list[Finding]:
    trace = load(FOLDER / f"{name}.json.gz", tensors=FOLDER / f"et/{name}.json.gz")
    return list(diagnose(trace, select=RULES).findings)


@pytest.mark.parametrize(
    ("name", "cause", "saved"),
    [
        ("seventh.table_former", "second-pass", 0.22),
        ("seventh.char_rnn", "loop-invariant", 0.40),
        ("sixth.speech_two", "loop-invariant", 0.09),
        ("seventh.denoise_unet", "unread-results", 0.52),
        ("sixth.linear_probe", "unread-gradients", 0.39),
        ("sixth.prompt_pass", "partly-read", 0.39),
    ],
)
def test_a_fault_is_named_and_its_repair_is_not(name: str, cause: str, saved: float) -> None:
    first, *_ = findings(f"{name}.bad")
    assert (first.cause, first.confidence) == (cause, Confidence.HIGH)
    assert first.saving is not None
    assert first.saving.share == pytest.approx(saved, abs=0.05)
    assert all(one.severity.rank >= Severity.LOW.rank for one in findings(f"{name}.fixed"))


def test_a_constant_graph_is_normalized_once() -> None:
    """In each step again, and within a step in each layer."""
    of_steps, of_layers = findings("fifth.gcn_uncached.bad")[:2]
    assert (of_steps.cause, of_steps.confidence) == ("stored-inputs", Confidence.MEDIUM)
    assert (of_layers.cause, of_layers.confidence) == ("unchanged-inputs", Confidence.HIGH)


def test_gradients_of_the_other_network_are_unread() -> None:
    first, *_ = findings("sixth.gan_two.bad")
    assert (first.cause, first.confidence) == ("unread-gradients", Confidence.HIGH)


def test_a_buffer_of_ones_in_each_backward_is_no_repetition() -> None:
    assert findings("fifth.multi_backward.bad") == []


def test_what_the_host_may_have_changed_is_no_repetition() -> None:
    """An environment writes each observation into the same memory."""
    assert findings("seventh.arena_play.bad") == []


def test_a_second_forward_without_backward_may_be_needless() -> None:
    """Without an execution trace: the batch may be another one, so it is no more than information."""
    report = diagnose(load(SHARED / "seventh/table_former.bad.json.gz"), select=("computed-again",))
    assert [finding.cause for finding in report.findings] == ["forward-twice"]
    (finding,) = report.findings
    assert (finding.severity, finding.confidence) == (Severity.INFO, Confidence.MEDIUM)
    assert finding.saving is not None
    assert finding.saving.share == pytest.approx(0.22, abs=0.02)
    assert finding.evidence["ops_a_step"] == 63
    repaired = diagnose(load(SHARED / "seventh/table_former.fixed.json.gz"), select=("computed-again",))
    assert not repaired.findings


def test_a_rollout_is_no_second_forward() -> None:
    """It runs the policy more often without backward than training does."""
    report = diagnose(load(SHARED / "sixth/ppo_rollout.bad.json.gz"), select=("computed-again",))
    assert "forward-twice" not in {finding.cause for finding in report.findings}


def test_a_hook_of_backward_repeats_the_forward_pass() -> None:
    """What goes is the pass without gradients: 8 ops of 2 µs on the GPU."""
    report = diagnose(cached_gradients().trace.load(), select=("computed-again",))
    (finding,) = report.findings
    assert (finding.cause, finding.confidence) == ("forward-in-hook", Confidence.MEDIUM)
    assert (finding.evidence["ops_a_step"], finding.evidence["launches"]) == (8, 8)
    assert finding.evidence["gpu_ns"] == 16_000
    assert finding.title.startswith("The forward pass runs again in a backward hook")


def test_a_matrix_is_factorized_once_for_all_right_hand_sides(tmp_path: Path) -> None:
    """Each of three solves factorises it; no shapes are recorded."""
    matrix, *sides = (Tensor(number, (64, 64)) for number in range(1, 6))
    solves = [
        Call("aten::linalg_solve", (matrix, side), (result,), inside="aten::linalg_lu_factor_ex")
        for side, result in pairwise(sides)
    ]
    path = written(tmp_path, [solves] * 3)
    recorded = json.loads(path.read_text())
    for event in recorded["traceEvents"]:
        event.get("args", {}).pop("Input Dims", None)
    path.write_text(json.dumps(recorded))
    (finding,) = diagnose(load(path), select=("computed-again",)).findings
    assert (finding.cause, finding.confidence) == ("same-matrix", Confidence.HIGH)
    assert finding.title.startswith("The same matrix is factorised again twice a step: 40.0 µs of GPU time")


def passes(*, trained: bool) -> list[Call]:
    """Four layers on the same batch, and again; the second time with a backward pass of 40 µs for each, or without."""
    batch, weight = Tensor(1), Tensor(2)
    plain, second = ([batch, *map(Tensor, range(at, at + 4))] for at in (10, 20))
    numbers = [*range(4)] if trained else [None] * 4
    forward = [Call("aten::linear", (read, weight), (result,)) for read, result in pairwise(plain)] + [
        Call("aten::linear", (read, weight), (result,), sequence=number)
        for (read, result), number in zip(pairwise(second), numbers, strict=True)
    ]
    read = Call("aten::sub", (plain[-1], second[-1]), (Tensor(30),))
    backward = [
        Call("aten::mm", (Tensor(30 + at), weight), (Tensor(31 + at),), backward=True, sequence=3 - at, gpu=40_000)
        for at in range(4)
    ]
    return [*forward, read, *(backward if trained else []), Call("mine::read", (Tensor(34 if trained else 30),))]


@pytest.mark.parametrize(("trained", "cause"), [(True, "first-pass"), (False, "second-pass")])
def test_the_pass_without_backward_is_needless(tmp_path: Path, trained: bool, cause: str) -> None:
    """Four layers of 20 µs; the backward pass stays."""
    path = written(tmp_path, [passes(trained=trained)] * 3)
    (finding,) = diagnose(load(path), select=("computed-again",)).findings
    assert (finding.cause, finding.confidence) == (cause, Confidence.HIGH)
    assert (finding.evidence["ops_a_step"], finding.evidence["gpu_ns"]) == (4, 80_000)
    assert ("run without backward, and again with it" in finding.title) == trained
