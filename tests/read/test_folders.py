"""Folders of jobs as tools lay them out; several iterations, and several jobs, in one folder."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.trace import Job, Trace
from traceanalyzer.read.folders import iteration_of_name, layout_of, rank_of_name
from traceanalyzer.read.load import load_any, load_job


def trace(rank: int | None = None, op: str = "aten::mm", world: int = 4, begin: int = 0) -> TraceBuilder:
    made = TraceBuilder() if rank is None else TraceBuilder(distributedInfo={"rank": rank, "world_size": world})
    made.op(op, begin + 1_000, 10_000)
    made.launched((2_000, 3_000), (20_000, 10_000), 1)
    return made


def write(path: Path, rank: int | None = None, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    trace(rank, **more).write(path)


def test_of_several_iterations_the_last_is_read(tmp_path: Path) -> None:
    for iteration in (9, 10):
        for rank in (0, 1):
            write(tmp_path / f"iteration_{iteration}" / f"rank{rank}_trace.json", rank)
    job = load_job(tmp_path)
    assert sorted(job) == [0, 1]
    assert all("iteration_10" in one.meta.source for one in job.values())
    assert list(job.iterations) == ["9", "10"]
    assert [Path(one).parent.name for one in job.iterations["9"]] == ["iteration_9", "iteration_9"]
    assert job.skipped == ()
    assert not job[0].meta.damage


LAYOUTS = {
    "TorchTitan": (["iteration_{i}/rank{r}_trace.json"], True),
    "one rank of TorchTitan": (["iteration_{i}/rank0_trace.json"], True),
    "torch's handler": (["node1_{r}23.17{i}.pt.trace.json"], True),
    "numbered folders": (["{i}/rank-{r}.json"], True),
    "a folder for each rank": (["rank{r}/trace_{i}.json"], True),
    "Megatron": (["torch_profile/rank-{r}.json"], False),
    "nested": (["run/profiles/iter{i}/rank_{r}/trace.json"], True),
    "numbers in front": (["step-{i}.rank-{r}.json"], True),
    "hosts": (["node{r}/1.json", "node{r}/2.json"], False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_iterations_of_a_rank_are_told_from_ranks(name: str, tmp_path: Path) -> None:
    patterns, several = LAYOUTS[name]
    every = set()
    for number, pattern in enumerate(patterns):
        for i, r in ((i, r) for i in (10, 20, 100) for r in (0, 1, 2)):
            file = tmp_path / pattern.format(i=i, r=r)
            if file not in every:
                every.add(file)
                write(file, 0 if "rank0" in pattern else r + 3 * number)
    layout = layout_of([tmp_path])
    assert len(layout.iterations) == (3 if several else 0)
    assert {one for files in layout.iterations.values() for one in files} == (every if several else set())
    assert {iteration_of_name(str(one)) for one in layout.files} <= {100, None}
    assert len(load_job(tmp_path)) == len(layout.files) == len(every) // (3 if several else 1)


def test_the_last_iteration_with_all_ranks_is_read(tmp_path: Path) -> None:
    for iteration, ranks in ((10, 2), (20, 2), (30, 1)):
        for rank in range(ranks):
            write(tmp_path / f"iteration_{iteration}" / f"rank{rank}.json", rank)
    assert {one.parent.name for one in layout_of([tmp_path]).files} == {"iteration_20"}


def test_patterns_that_no_shell_has_expanded(tmp_path: Path) -> None:
    for iteration in (10, 20):
        for rank in (0, 1):
            write(tmp_path / f"iteration_{iteration}" / f"rank{rank}.json", rank)
    layout = layout_of([tmp_path / "iteration_*" / "rank[01].json"])
    assert list(layout.iterations) == ["10", "20"]
    assert [one.name for one in layout.files] == ["rank0.json", "rank1.json"]


def test_a_copy_is_passed_over_and_named(tmp_path: Path) -> None:
    for name in ("rank0.json", "rank0 (copy).json", "rank1.json"):
        write(tmp_path / name, int(name[4]))
    job = load_job(tmp_path)
    assert sorted(job) == [0, 1]
    assert [one.problem.partition("as ")[0] for one in job.skipped] == ["the same recording "]


def test_names_tell_ranks_that_traces_do_not_declare(tmp_path: Path) -> None:
    for rank in (3, 7):
        write(tmp_path / f"worker_rank-{rank}.123.pt.trace.json")
    assert sorted(load_job(tmp_path)) == [3, 7]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("/a/rank3_trace.json.gz", 3),
        ("/a/rank-12.json", 12),
        ("/a/rank_0/trace.json", 0),
        ("/a/host.rank=5.json", 5),
        ("/a/prank3.json", None),
        ("/a/rank1/rank2.json", 2),  # the last
        ("/a/rank1_rank2.json", 2),
        ("/rank5/a/trace.json", None),
        ("/a/Rank 4.json", 4),
        ("/a/trace.json", None),
    ],
)
def test_ranks_of_names(name: str, rank: int | None) -> None:
    assert rank_of_name(name) == rank


def test_what_declares_no_rank_is_no_copy_of_another(tmp_path: Path) -> None:
    """Two ranks that do the same at the same time look alike where neither says which it is."""
    for name in ("first.json", "second.json"):
        write(tmp_path / name)
    job = load_job(tmp_path)
    assert (sorted(job), job.skipped) == ([0, 1], ())


@pytest.mark.parametrize(("depth", "found"), [(1, True), (4, True), (5, False)])
def test_traces_are_found_up_to_four_folders_below(depth: int, found: bool, tmp_path: Path) -> None:
    below = tmp_path.joinpath(*["sub"] * depth) / "trace.json"
    write(below)
    assert layout_of([tmp_path]).files == ((below,) if found else ())
    write(tmp_path / "first.json")
    assert layout_of([tmp_path]).files == (tmp_path / "first.json",)


def test_files_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 9, 100):
        write(tmp_path / f"host{number}.json")
    by_number = ["host9.json", "host10.json", "host100.json"]
    assert [one.name for one in layout_of([tmp_path]).files] == by_number
    assert [one.name for one in layout_of([tmp_path / "host*.json"]).files] == by_number


@pytest.mark.parametrize(
    ("name", "iteration"),
    [
        ("job/iteration_10/rank0.json", 10),
        ("job/iter-7/rank3/trace.json", 7),
        ("job/steps_5/step_6.json", 6),  # the innermost
        ("job/step_1_step_2.json", 2),
        ("job/timestep3.json", None),
        ("step_9/a/b/c/d/trace.json", None),  # further up than a job's folders reach
        ("step_9/a/b/c/trace.json", 9),
    ],
)
def test_iterations_of_names(name: str, iteration: int | None) -> None:
    assert iteration_of_name(name) == iteration


def test_repeated_rank_in_other_names_is_no_iteration(tmp_path: Path) -> None:
    for name, rank in (("a.json", 0), ("b.json", 1), ("c.json", 1)):
        write(tmp_path / "plain" / name, rank)
    assert layout_of([tmp_path / "plain"]).iterations == {}
    for name, rank in (("node0.1.json", 0), ("node1.1.json", 1), ("node1.2.json", 1)):
        write(tmp_path / "numbered" / name, rank)
    layout = layout_of([tmp_path / "numbered"])
    assert {key: [one.name for one in files] for key, files in layout.iterations.items()} == {
        "1": ["node0.1.json", "node1.1.json"],
        "2": ["node1.2.json"],
    }
    assert [one.name for one in layout.files] == ["node0.1.json", "node1.1.json"]


@pytest.mark.parametrize(
    ("names", "iterations"),
    [
        (["1/a.json", "1/b.json", "2/a.json", "2/b.json"], 2),
        (["1/a.json", "2/a.json", "2/b.json"], 0),  # a folder of one file, as of a host
        (["1/x/a.json", "1/x/b.json", "2/x/a.json", "2/x/b.json"], 2),
        (["1/x/a.json", "1/x/b.json", "2/y/a.json", "2/y/b.json"], 0),
        (["one/a.json", "one/b.json", "two/a.json", "two/b.json"], 0),
    ],
)
def test_folders_that_differ_in_numbers_are_iterations(names: list[str], iterations: int, tmp_path: Path) -> None:
    for name in names:
        write(tmp_path / name)
    layout = layout_of([tmp_path])
    assert len(layout.iterations) == iterations
    assert len(layout.files) == len(names) // max(iterations, 1)


def test_a_folder_of_one_trace_is_a_job_and_a_file_a_trace(tmp_path: Path) -> None:
    write(tmp_path / "rank4.json", 4)
    job, alone = load_any(tmp_path), load_any(tmp_path / "rank4.json")
    assert isinstance(job, Job)
    assert isinstance(alone, Trace)
    assert list(job) == [alone.meta.rank] == [4]


def test_some_files_of_an_iteration_are_no_iterations(tmp_path: Path) -> None:
    """One of them names none; or all name the same."""
    for name, rank in (("iter_1.a.json", 0), ("iter_2.b.json", 1), ("c.json", 2)):
        write(tmp_path / "some" / name, rank)
    for name, rank in (("iter_1.a.json", 0), ("iter_1.b.json", 1)):
        write(tmp_path / "same" / name, rank)
    for folder in ("some", "same"):
        layout = layout_of([tmp_path / folder])
        assert layout.iterations == {}
        assert len(layout.files) == len(list((tmp_path / folder).iterdir()))


@pytest.mark.parametrize("odd", ["trace[1].json", "what?.json", "a*b.json"])
def test_a_name_that_is_a_pattern_is_the_file_where_there_is_one(odd: str, tmp_path: Path) -> None:
    write(tmp_path / odd)
    write(tmp_path / "trace1.json")
    write(tmp_path / "whatx.json")
    write(tmp_path / "axb.json")
    assert layout_of([tmp_path / odd]).files == (tmp_path / odd,)
    (tmp_path / odd).unlink()
    assert len(layout_of([tmp_path / odd]).files) == 1
    assert layout_of([tmp_path / odd]).files != (tmp_path / odd,)
    assert layout_of([tmp_path / "none[1].json"]).files == (tmp_path / "none[1].json",)


def test_folders_are_ordered_by_number_and_depth(tmp_path: Path) -> None:
    names = ["node2/a.json", "node2/sub/b.json", "node10/a.json", "node10/c/x.json/d.json"]
    for name in names:
        write(tmp_path / name)
    (tmp_path / "empty.json").mkdir()
    assert [str(one.relative_to(tmp_path)) for one in layout_of([tmp_path]).files] == names
    assert layout_of([tmp_path, tmp_path / "empty.json"]).empty == (tmp_path / "empty.json",)
