"""Programs that wait for their data."""

import pytest

from tests.rules.hosts import MS, alarms
from tests.rules.loops import Loop, annotated, loop_of

SINGLE, MULTI = (
    f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__" for kind in ("SingleProcess", "MultiProcessing")
)


@pytest.mark.parametrize("name", ["load_batch", "next_batch", "## data_loading ##", MULTI])
def test_the_advice_fits_the_iterator(name: str) -> None:
    (found,) = alarms(loop_of(annotated(name, 5 * MS)), "dataloader-stall")
    assert found.by == name
    assert ("workers are too slow" in found.advice) == (name == MULTI)
    assert "num_workers=0" not in found.advice


@pytest.mark.parametrize(
    ("which", "recurs"), [({5, 6}, False), ({3, 7, 11}, True), ({*range(3, 8)}, False), ({*range(3, 9)}, True)]
)
def test_workers_behind_once_are_info(which: set[int], recurs: bool) -> None:
    """Of twelve steps; half of them are no episode, though in a row."""

    def body(loop: Loop, number: int) -> None:
        annotated(MULTI, 5 * MS if number in which else 50_000)(loop, number)

    assert len(alarms(loop_of(body, steps=12), "dataloader-stall")) == recurs


def collating(loop: Loop, number: int) -> None:
    """A batch of 5 ms: 4 ms of the user's collate function, of which a copy takes 1 ms; the rest is torch's own."""
    start = loop.now
    loop.annotation(SINGLE, start, 5 * MS)
    loop.python("train.py(90): step", start - 1_000, 5 * MS + 2_000, python_id=10 * number + 1)
    loop.python("train.py(59): collate", start + MS // 2, 4 * MS, python_id=10 * number + 2)
    loop.op("aten::copy_", start + MS, MS)
    loop.now += 5 * MS + 2_000


def test_loader_time_is_split_by_user_functions() -> None:
    (found,) = alarms(loop_of(collating), "dataloader-stall")
    assert (
        "the loader spends its time in train.py(59): collate() (80 % of the loader's time), other code (20 %)"
        in found.message
    )
    assert found.title == "Loading a batch takes 5.00 ms, 80 % of it in collate() (train.py:59)"
    assert "train.py(90)" not in found.message
    assert "train.py(59): collate() itself may be faster" in found.advice


GET = "data.py(5): __getitem__"
ENCODING, UNDIRECTED = ("torch_geometric/transforms/encoding.py(9): forward", "transforms/undirected.py(7): forward")


def transforming(loop: Loop, number: int, drawn: str = "") -> None:
    """A batch of five items of 2 ms: each is 1 ms in one transform and 0.6 ms in another."""
    loop.annotation(SINGLE, loop.now, 10 * MS)
    for item in range(5):
        start, python_id = loop.now + 2 * item * MS, 100 * number + 10 * item + 1
        frames = (GET, 0, 2 * MS), (ENCODING, 1_000, MS), (UNDIRECTED, 1_100_000, 600_000)
        for place, (name, at, ns) in enumerate(frames):
            loop.python(name, start + at, ns, python_id=python_id + place)
        if drawn.startswith("aten"):
            loop.op(drawn, start + MS // 2, 1_000)
        elif drawn:
            loop.python(drawn, start + MS // 2, 1_000, python_id=python_id + 5)
    loop.now += 10 * MS + 2_000


def test_deepest_functions_with_most_of_the_time_are_named() -> None:
    """Of 20 ms for each batch of 10 ms, of which 80 % are in two functions below __getitem__."""
    (found,) = alarms(loop_of(transforming), "dataloader-stall")
    assert found.title == "Loading a batch takes 10.0 ms, 50 % of it in encoding.py, 30 % in undirected.py"
    assert list(found.evidence["functions"]) == [ENCODING, UNDIRECTED, "other code"]
    assert found.advice.startswith(
        "First compute what does not depend on chance when the data set is prepared "
        "(pre_transform= instead of transform=), and store it. Load in other processes"
    )
    assert "itself may be faster" not in found.advice


@pytest.mark.parametrize("names", [("tree.py(3): walk",), ("tree.py(3): walk", "tree.py(9): child")])
def test_functions_that_recurse_deeply_are_named(names: tuple[str, ...]) -> None:
    """A batch of 5 ms in 1,100 nested frames, which call themselves or each other."""

    def body(loop: Loop, number: int) -> None:
        loop.annotation(SINGLE, loop.now, 5 * MS)
        for depth in range(1_100):
            name, python_id = names[depth % len(names)], 2_000 * number + depth + 1
            loop.python(name, loop.now + 10 * depth, 5 * MS - 20 * depth, python_id=python_id)
        loop.now += 5 * MS + 2_000

    (found,) = alarms(loop_of(body), "dataloader-stall")
    assert list(found.evidence["functions"]) == [names[-1]]


@pytest.mark.parametrize(
    "drawn",
    [
        "aten::rand",
        "aten::bernoulli_",
        "random.py(250): randrange",
        "lib/python3.12/random.py(250): randrange",
        "<built-in method random of _random.X>",
    ],
)
def test_transforms_with_chance_are_not_prepared(drawn: str) -> None:
    def body(loop: Loop, number: int) -> None:
        transforming(loop, number, drawn)

    (found,) = alarms(loop_of(body), "dataloader-stall")
    assert found.advice.startswith("Load in other processes")


@pytest.mark.parametrize(("rest_ms", "workers"), [(20, "1,"), (4, "3,"), (0.5, "16 or more,")])
def test_workers_load_a_batch_as_fast_as_steps_run(rest_ms: float, workers: str) -> None:
    """A batch of 10 ms beside so many ms of other work in a step, 0.1 ms of which are launches."""

    def body(loop: Loop, number: int) -> None:
        annotated(SINGLE, 10 * MS)(loop, number)
        loop.pause(int(rest_ms * MS) - 100_000)

    (found,) = alarms(loop_of(body), "dataloader-stall")
    assert f"num_workers={workers}" in found.advice


@pytest.mark.parametrize("around", ["load_batch", SINGLE])
def test_nested_loaders_are_one_wait(around: str) -> None:
    """The one around takes 5 ms, of which the loader's own call takes 3 ms."""

    def body(loop: Loop, _: int) -> None:
        loop.annotation(around, loop.now, 5 * MS)
        loop.annotation(SINGLE, loop.now + MS, 3 * MS)
        loop.now += 5 * MS + 2_000

    (found,) = alarms(loop_of(body), "dataloader-stall")
    assert (found.by, found.count, found.evidence["wait_ns"]) == (around, 6, 6 * 5 * MS)
    assert "num_workers=0" in found.advice  # of the loader inside


@pytest.mark.parametrize(("mine_ms", "named"), [(2, False), (3, True)])
def test_function_with_half_of_loader_time_is_named(mine_ms: int, named: bool) -> None:
    """Of 5 ms; the rest is torch's own, has no line, and is not to be made faster with arrays."""

    def body(loop: Loop, number: int) -> None:
        loop.annotation(SINGLE, loop.now, 5 * MS)
        loop.python("train.py(59): collate", loop.now + MS, mine_ms * MS, python_id=number + 1)
        loop.now += 5 * MS + 2_000

    (found,) = alarms(loop_of(body), "dataloader-stall")
    assert ("train.py(59): collate() itself may be faster" in found.advice) is named
    assert ("may be faster" in found.advice) is named
    assert found.evidence["lines"] == pytest.approx({"train.py(59): collate": 6 * mine_ms * MS}, rel=0.02)


def test_waits_report_median_and_busy_gpu_waits_for_none() -> None:
    def body(loop: Loop, number: int) -> None:
        loop.launched(kernel_ns=2 * MS)
        annotated(MULTI, (20 if number == 4 else 5) * MS)(loop, number)

    (found,) = alarms(loop_of(body), "dataloader-stall")
    assert (found.evidence["typical_ns"], found.evidence["largest_ns"]) == (5 * MS, 20 * MS)
    assert found.evidence["wait_ns"] == 45 * MS
    assert 45 * MS - 6 * 2 * MS < found.cost_ns < 45 * MS - 6 * 1.8 * MS


def test_functions_share_the_time_of_all_waits() -> None:
    """Waits of 5 ms and of 15 ms in turn, each of them of one function."""

    def body(loop: Loop, number: int) -> None:
        name, ns = ("data.py(7): flip", 5 * MS) if number % 2 else ("data.py(9): crop", 15 * MS)
        loop.annotation(SINGLE, loop.now, ns)
        loop.python(name, loop.now + 1_000, ns - 2_000, python_id=number + 1)
        loop.now += ns + 2_000

    (found,) = alarms(loop_of(body), "dataloader-stall")
    functions = found.evidence["functions"]
    assert list(functions) == ["data.py(9): crop", "data.py(7): flip"]
    assert [ns / (3 * 20 * MS) for ns in functions.values()] == pytest.approx([0.75, 0.25], abs=0.01)


def test_a_call_within_an_op_is_the_op_s_time() -> None:
    """An op of 2 ms of a batch of 5 ms, most of which allocates pinned memory."""

    def body(loop: Loop, number: int) -> None:
        loop.annotation(SINGLE, loop.now, 5 * MS)
        loop.op("aten::pin_memory", loop.now + MS, 2 * MS)
        loop.launch("cudaHostAlloc", loop.now + MS + 100_000, 3 * MS // 2, 9_000 + number)
        loop.now += 5 * MS + 2_000

    (found,) = alarms(loop_of(body), "dataloader-stall")
    ops = found.evidence["ops"]
    assert list(ops) == ["code outside of ops", "aten::pin_memory"]
    assert list(ops.values()) == [6 * 3 * MS, 6 * 2 * MS]


@pytest.mark.parametrize(("launches", "cause"), [(40, "on-device"), (20, "")])
def test_dataset_on_the_gpu_keeps_the_time_of_its_python_code(launches: int, cause: str) -> None:
    """A batch of 5 ms in which ops launch kernels: workers cannot load it, and only the launches can go."""

    def body(loop: Loop, number: int) -> None:
        start = loop.now
        loop.annotation(SINGLE, start, 5 * MS)
        for place in range(launches):
            at, correlation = start + (place + 1) * 100_000, 10_000 + 100 * number + place
            loop.op("aten::add", at, 20_000)
            loop.launch("cudaLaunchKernel", at + 5_000, 10_000, correlation)
            loop.kernel(at + 20_000, 2_000, correlation)
        loop.now += 5 * MS + 2_000

    (found,) = alarms(loop_of(body), "dataloader-stall")
    assert found.cause == cause
    assert ("Keep the dataset on the CPU" in found.advice) is bool(cause)
    assert found.saving is not None
    assert (found.saving.share < 0.25) is bool(cause)
