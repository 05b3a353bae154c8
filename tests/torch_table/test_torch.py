"""Against key_averages() of the torch that is installed, on captures of the CPU made here."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.xdist_groups import with_torch
from tests.torch_table.truth import COLUMNS
from traceanalyzer.read.load import load_file
from traceanalyzer.render.text.table import TableSize, render_table
from traceanalyzer.torch_table.key_averages import KeyAverages, key_averages
from traceanalyzer.torch_table.printed import printed_table

pytestmark = [pytest.mark.filterwarnings("ignore"), with_torch]
torch: Any = None  # until the first of these tests runs

CPU_COLUMNS = {torchs: ours for torchs, ours in COLUMNS.items() if "device" not in torchs}
SWITCHES: dict[str, dict[str, bool]] = {
    "plain": {},
    "memory_shapes_flops": {"profile_memory": True, "record_shapes": True, "with_flops": True},
    "stacks": {"with_stack": True, "record_shapes": True, "profile_memory": True, "with_modules": True},
}


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """By these tests alone: it takes seconds."""
    global torch
    torch = pytest.importorskip("torch", reason="torch is not installed")


def train() -> None:
    """Two steps of training, annotated, with lists of tensors, repeats of one name, and allocations."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 64, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        with torch.profiler.record_function("forward"):
            images = torch.randn(4, 3, 8, 8)
            scores = model(images)
        (scores @ torch.randn(10, 3)).sum().backward()
        torch.baddbmm(torch.ones(2, 3, 5), torch.ones(2, 3, 4), torch.ones(2, 4, 5)).mul(2).add(torch.ones(5))
        torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5))
        optimizer.step()
        optimizer.zero_grad()
        torch.cat([images, images])


@pytest.fixture(scope="module", params=SWITCHES.values(), ids=SWITCHES.keys())
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Training as recorded with each of the switches, once for all tests."""
    return captured(tmp_path_factory.mktemp("trained"), train, **request.param)


def captured(folder: Path, work: Callable[[], None], **switches: Any) -> tuple[Any, Any]:
    """The profiler and the trace that it exported."""
    work()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, **switches) as profiler:
        work()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    return profiler, load_file(path)


def lists_python(profiler: Any) -> bool:
    """Whether this torch has python functions in its table: 2.12 and 2.13 do."""
    return any(".py(" in row.key for row in profiler.key_averages())


def assert_equal(rows: Any, ours: KeyAverages, *, shapes: bool = False, stacks: bool = False) -> None:
    """All rows in order, all columns of the CPU: times within 1 ns, sizes and counts equal."""
    keys = [(row.key, str(row.input_shapes) if shapes else "", list(row.stack) if stacks else []) for row in rows]
    records = ours.rows.to_dict("records")
    found = [(row["name"], row.get("input_shapes", ""), list(row.get("stack", []))) for row in records]
    assert found == keys
    for row, record in zip(rows, records, strict=True):
        for theirs, name in CPU_COLUMNS.items():
            wanted = getattr(row, theirs) * (1000 if "time" in theirs else 1)
            assert abs(record[name] - wanted) < 1, (row.key, theirs)


def test_rows_equal_key_averages(trained: tuple[Any, Any]) -> None:
    profiler, trace = trained
    python = lists_python(profiler)
    assert_equal(profiler.key_averages(), key_averages(trace, python_functions=python))


def test_rows_by_shape_equal_key_averages(trained: tuple[Any, Any]) -> None:
    profiler, trace = trained
    ours = key_averages(trace, by_input_shape=True, python_functions=lists_python(profiler))
    assert_equal(profiler.key_averages(group_by_input_shape=True), ours, shapes=True)


def test_rows_by_stack_equal_key_averages(tmp_path: Path) -> None:
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    profiler, trace = captured(tmp_path, train, with_stack=True, experimental_config=verbose)
    ours = key_averages(trace, by_stack=3, python_functions=lists_python(profiler))
    rows = profiler.key_averages(group_by_stack_n=3)
    assert any(row.stack for row in rows)
    assert_equal(rows, ours, stacks=True)


def test_threads_share_memory_events_as_torch_shares_them(tmp_path: Path) -> None:
    def work() -> None:
        other = threading.Thread(target=train)
        other.start()
        train()
        other.join()

    profiler, trace = captured(tmp_path, work, profile_memory=True)
    assert_equal(profiler.key_averages(), key_averages(trace))


def test_the_text_equals_torchs(trained: tuple[Any, Any]) -> None:
    profiler, trace = trained
    ours = key_averages(trace, python_functions=lists_python(profiler))
    theirs = profiler.key_averages().table(sort_by="cpu_time_total", row_limit=20)
    assert render_table(printed_table(ours, "cpu_time_total"), TableSize(20)).split("\n") == theirs.split("\n")


def test_the_text_by_shape_has_flops_and_shapes(tmp_path: Path) -> None:
    profiler, trace = captured(tmp_path, train, record_shapes=True, with_flops=True)
    theirs = profiler.key_averages(group_by_input_shape=True)
    ours = key_averages(trace, by_input_shape=True)
    flops = {(row["name"], row["input_shapes"]): row["flops"] for row in ours.rows.to_dict("records")}
    assert flops == {(row.key, str(row.input_shapes)): row.flops for row in theirs}
    text = theirs.table(sort_by="self_cpu_time_total", row_limit=15)
    assert render_table(printed_table(ours, "self_cpu_time_total"), TableSize(15)).split("\n") == text.split("\n")
