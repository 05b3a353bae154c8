"""A copy between host and device names the op on CPU tensors that it is for."""

import pytest

from tests.rules.programs import TO_DEVICE, TO_HOST, US, Program, found
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule.registry import find_rule

SIZE = 8 << 20
LOADER = "enumerate(DataLoader)#_Iter.__next__"


def steps(*, down: bool, worker: str | None, back: int = 0) -> Program:
    """Steps of a kernel and a copy, with an op on the host at its other end, which sends `back` so many bytes."""
    made = Program()
    for step in range(5):
        made.step(step)
        made.kernel(dur=200 * US)
        if worker and not down:
            made.trace.op(worker, made.now, 300 * US)
            made.now += 310 * US
        way = TO_HOST if down else TO_DEVICE
        made.copy(way, SIZE, 700 * US, ("aten::to", "aten::_to_copy", "aten::copy_"))
        if worker and down:
            made.trace.op(worker, made.now, 300 * US)
            made.now += 310 * US
        if back:
            made.copy(TO_DEVICE, back, 2 * US, ("aten::to", "aten::_to_copy", "aten::copy_"))
        made.kernel(dur=200 * US)
    return made


def test_what_works_on_the_host_with_what_was_copied_is_named() -> None:
    (one,) = found(steps(down=True, worker="aten::argmax").trace, "exposed-copy")
    assert "; on the host, aten::argmax works on the data" in one.message
    assert one.advice.startswith("Run aten::argmax on the device")


def test_op_on_the_device_needs_no_copy_back() -> None:
    """The op on the host goes with both copies; where none works on the data, what comes up is something else."""

    def saved_ns(worker: str | None, back: int) -> int:
        (one,) = found(steps(down=True, worker=worker, back=back).trace, "exposed-copy")
        assert one.saving is not None
        return one.saving.step_ns

    assert saved_ns("aten::argmax", 8) > saved_ns("aten::argmax", 0) + 150 * US
    assert saved_ns(None, 8) < saved_ns(None, 0) + 20 * US


@pytest.mark.parametrize(("back", "replaced"), [(8, True), (3 << 20, False)])
def test_only_a_few_bytes_are_what_the_host_made_of_the_data(back: int, replaced: bool) -> None:
    """Whatever is larger is other data, and its copy does not go with the op."""
    trace = steps(down=True, worker="aten::argmax", back=back).trace.load()
    hits = find_rule("exposed-copy").hits(Analysis(trace))
    (down,) = (one for one in hits if one.named_by == "device to host")
    assert any(isinstance(edit, DropSpans) and len(edit.starts_ns) for edit in down.edits()) is replaced


def test_the_op_that_works_longest_is_named() -> None:
    made = Program()
    for step in range(5):
        made.step(step)
        made.kernel(dur=200 * US)
        made.copy(TO_HOST, SIZE, 500 * US, ("aten::to", "aten::_to_copy", "aten::copy_"))
        for worker, dur in (("aten::abs", 50), ("aten::argmax", 300), ("aten::neg", 40)):
            made.trace.op(worker, made.now, dur * US)
            made.now += (dur + 5) * US
        made.kernel(dur=200 * US)
    (one,) = found(made.trace, "exposed-copy")
    assert one.evidence["worker"] == "aten::argmax"


@pytest.mark.parametrize(("annotation", "worker"), [(LOADER, None), ("augment", "aten::randn")])
def test_data_loader_ops_do_not_create_step_data(annotation: str, worker: str | None) -> None:
    made = Program()
    for step in range(5):
        made.step(step)
        made.kernel(dur=200 * US)
        made.trace.annotation(annotation, made.now, 310 * US)
        made.trace.op("aten::randn", made.now + 5 * US, 300 * US)
        made.now += 320 * US
        made.copy(TO_DEVICE, SIZE, 500 * US, ("aten::to", "aten::_to_copy", "aten::copy_"))
    (one,) = found(made.trace, "exposed-copy")
    assert one.evidence.get("worker") == worker


def test_what_makes_on_the_host_what_is_copied_is_named() -> None:
    (one,) = found(steps(down=False, worker="aten::randn").trace, "exposed-copy")
    assert "; on the host, aten::randn makes the data" in one.message
    assert one.advice.startswith("Create it on the device: aten::randn with device='cuda'")


@pytest.mark.parametrize("worker", [None, "aten::view", "aten::empty_like", "aten::new_empty", "aten::contiguous"])
def test_without_host_op_the_copy_has_no_worker(worker: str | None) -> None:
    for down in (True, False):
        (one,) = found(steps(down=down, worker=worker).trace, "exposed-copy")
        assert "worker" not in one.evidence


def made_on_the_host(shape: list[int], *, recorded: bool, pause: int = 0) -> Program:
    """Steps of an op on the host, a pause, and a copy of `SIZE` bytes to the device."""
    made = Program()
    for step in range(5):
        made.step(step)
        made.kernel(dur=200 * US)
        inputs = {"Input Dims": [shape], "Input type": ["float"]} if recorded else {}
        made.trace.op("aten::neg", made.now, 300 * US, **inputs)
        made.now += 310 * US + pause
        made.copy(TO_DEVICE, SIZE, 700 * US, ("aten::to", "aten::_to_copy", "aten::copy_"))
        made.kernel(dur=200 * US)
    return made


@pytest.mark.parametrize(
    ("shape", "recorded", "pause", "named"),
    [
        ([SIZE // 4], True, 0, True),
        ([SIZE // 8], True, 0, True),  # converted to doubles
        ([50_000], True, 0, False),  # another size
        ([], False, 0, True),
        ([], False, 400 * US, False),  # of unknown size, and long before
    ],
)
def test_the_maker_of_copied_data_has_its_size(shape: list[int], recorded: bool, pause: int, named: bool) -> None:
    (one,) = found(made_on_the_host(shape, recorded=recorded, pause=pause).trace, "exposed-copy")
    assert ("aten::neg makes the data" in one.message) is named
    assert ("aten::neg" in one.advice) is named
