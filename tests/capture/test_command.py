"""The command line of capture: options without torch, recordings on the CPU with it."""

import gzip
import json
from argparse import ArgumentParser, Namespace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from capture.cli import NOT_RECORDED, build_parser, describe_workloads, main
from capture.device import NO_GPU_NOTE, Device
from capture.errors import CaptureError
from capture.workload import Window, discover, no_options
from tests.support.fixtures import RECORDED
from tests.support.xdist_groups import with_torch

pytestmark = with_torch

WORKLOADS = discover()
RULES = {slug.replace("-", "_") for slug in RECORDED}
SMALL = {
    "activity_buffer_request": ["--size", "8", "--matmuls", "2", "--fill", "3"],
    "exposed_communication": ["--ranks", "1"],
    "healthy": ["--width", "16", "--rows", "8", "--layers", "1"],
    "hidden_dtod_copy": ["--size", "16", "--rows", "8"],
    "kernel_variance": ["--size", "16", "--other-size", "16", "--matmuls", "2"],
    "lane_offset": ["--size", "16"],
    "long_device_sync": ["--width", "8", "--rows", "4", "--layers", "2"],
    "matmul": ["--size", "16", "--batch", "2", "--iterations", "2"],
    "needless_collectives": ["--ranks", "1"],
    "scheduler_gap": ["--size", "8", "--entries", "4", "--matmuls", "2", "--pause-ms", "1"],
    "training": ["--batch", "1", "--width", "4"],
}
QUICK = ["--timed-steps", "1", "--warm-steps", "1", "--device", "cpu"]
WITH_OPTIONS = {name for name, workload in WORKLOADS.items() if workload.add_options is not no_options}
EVERY_VARIANT = [(name, variant) for name, w in WORKLOADS.items() for variant in w.variants or (None,)]


@cache
def every_option() -> ArgumentParser:
    """The command's parser, which takes a tenth of a second to build."""
    return build_parser(WORKLOADS)


def read(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def record(*arguments: str) -> int:
    pytest.importorskip("torch", reason="torch is not installed, so nothing can be recorded")
    return main([*arguments, *QUICK])


def test_every_rule_has_a_workload_with_both_variants() -> None:
    assert set(WORKLOADS) >= RULES
    assert all({"bad", "good"} <= set(WORKLOADS[name].shows) for name in RULES)
    assert set(SMALL) == WITH_OPTIONS, "give each workload with options small sizes here"


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_options_parse(name: str) -> None:
    parser = every_option()
    args = parser.parse_args([name, *SMALL.get(name, ()), *QUICK, "--out", "x", "--memory", "--active", "3"])
    assert (args.memory, args.active, args.out) == (True, 3, Path("x"))
    dashed = parser.parse_args([name.replace("_", "-"), "--out", "x"])
    assert dashed.workload.replace("-", "_") == name


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_examples_in_help_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = every_option()
    for example in WORKLOADS[name].examples:
        assert parser.parse_args(example.split()).workload == name
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert f"python -m capture {WORKLOADS[name].examples[0]}" in capsys.readouterr().out


def test_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.strip() == describe_workloads(WORKLOADS)
    assert "scheduler_gap [bad|good|once]" in describe_workloads(WORKLOADS)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no_such_workload", "--out", "x"],
        ["matmul"],
        ["scheduler_gap", "--variant", "worse", "--out", "x"],
        ["matmul", "--size", "large", "--out", "x"],
    ],
)
def test_wrong_arguments_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["matmul", "--op", "addmm", "--batch", "2"], "takes no --batch"),
        (["matmul", "--size", "-4"], "at least 1"),
        (["matmul", "--active", "0"], "--active must be at least 1"),
        (["matmul", "--name", "a/b"], "plain file name"),
        (["needless_collectives", "--ranks", "0"], "at least 1"),
    ],
)
def test_impossible_recordings_exit_2(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(*arguments, "--out", str(tmp_path)) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_not_there_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert main(["matmul", "--device", "cuda", "--out", str(tmp_path)]) == 2
    assert "--device cpu" in capsys.readouterr().err


def test_errors_of_torch_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    too_large = ["--model", "cnn", "--batch", "1", "--width", str(1 << 40)]
    assert record("training", *too_large, "--out", str(tmp_path)) == 2
    assert "--debug shows where" in capsys.readouterr().err
    with pytest.raises(RuntimeError):
        record("training", *too_large, "--debug", "--out", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("variant", WORKLOADS["compile"].variants)
def test_what_is_compiled_takes_its_steps_on_the_cpu(variant: str) -> None:
    """What the steps of the other workloads call is in test_workload_ops.py."""
    pytest.importorskip("torch", reason="torch is not installed")
    plan = WORKLOADS["compile"].build(Namespace(variant=variant), Device("cpu"))
    plan.step()
    plan.step()


@pytest.mark.parametrize(("name", "variant"), [one for one in EVERY_VARIANT if one[0] in WITH_OPTIONS])
def test_recording_on_the_cpu(
    name: str, variant: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--variant", variant] if variant else []
    size = SMALL.get(name, ())
    assert record(name, *chosen, *size, "--out", str(tmp_path), "--name", "it", "--active", "2") == 0
    printed = capsys.readouterr().out
    assert NO_GPU_NOTE in printed
    files = ["it.json.gz", "it.meta.json", "it.table.json.gz", "it.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    assert all(f"wrote {tmp_path / file}" in printed for file in files)
    check_files(tmp_path, name)


def check_files(folder: Path, workload: str) -> None:
    trace, meta, rows = (read(folder / f"it.{end}") for end in ("json.gz", "meta.json", "table.json.gz"))
    steps = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e["name"].startswith("ProfilerStep#")]
    assert len(steps) == 2
    assert not any(e.get("cat") == "kernel" for e in trace["traceEvents"])
    assert trace["traceName"] == "it.json"
    assert meta["workload"] == workload
    assert meta["device"] == "cpu"
    assert meta["window"]["active"] == 2
    assert meta["notes"] == [NO_GPU_NOTE]
    assert meta["unprofiled_step_ms"] == sorted(meta["unprofiled_step_ms"])
    assert len(meta["unprofiled_step_ms"]) == 3
    assert not NOT_RECORDED & set(meta["arguments"])
    assert meta["json_bytes"] == len(gzip.decompress((folder / "it.json.gz").read_bytes()))
    assert any(row["key"] == "ProfilerStep*" and row["count"] == 2 for row in rows)
    assert "Self CPU" in (folder / "it.txt").read_text()


def test_switches_and_scrubbing(tmp_path: Path) -> None:
    switches = ["--memory", "--shapes", "--stacks", "--flops"]
    assert record("training", *SMALL["training"], *switches, "--out", str(tmp_path), "--active", "1") == 0
    trace = read(tmp_path / "training.json.gz")
    assert (trace["record_shapes"], trace["with_stack"], trace["profile_memory"]) == (1, 1, 1)
    names = [e["name"] for e in trace["traceEvents"] if e.get("cat") == "python_function"]
    assert any(name.startswith("capture/session.py(") for name in names)
    for path in tmp_path.iterdir():
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        assert str(Path.home()) + "/" not in text, path.name
        assert "/site-packages/" not in text, path.name
        assert str(tmp_path) not in text, path.name


def test_without_schedule_there_are_no_steps(tmp_path: Path) -> None:
    arguments = ["--size", "16", "--no-schedule", "--no-table", "--active", "3"]
    assert record("matmul", *arguments, "--out", str(tmp_path)) == 0
    names = [e["name"] for e in read(tmp_path / "matmul.json.gz")["traceEvents"]]
    assert names.count("matmul_add") == 3
    assert not any(name.startswith("ProfilerStep") for name in names)
    assert not (tmp_path / "matmul.txt").exists()


def test_a_cold_plan_is_timed_afterwards(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    out = ["--out", str(tmp_path), "--device", "cpu", "--timed-steps", "1"]
    assert main(["lane_offset", "--variant", "bad", "--size", "16", *out]) == 0
    meta = read(tmp_path / "lane_offset.bad.meta.json")
    assert (meta["unprofiled_timed"], meta["warm_steps"]) == ("after", 0)
    names = [e["name"] for e in read(tmp_path / "lane_offset.bad.json.gz")["traceEvents"]]
    assert "ProfilerStep#0" in names


def test_nothing_is_overwritten_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["matmul", "--size", "16", "--out", str(tmp_path)]
    (tmp_path / "matmul.txt").write_text("mine")
    assert record(*arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["matmul.txt"]
    assert record(*arguments, "--force") == 0
    assert (tmp_path / "matmul.txt").read_text() != "mine"


def test_out_that_is_a_file_exits_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert record("matmul", "--out", str(tmp_path / "file")) == 2


def test_window_must_keep_a_step() -> None:
    assert Window(0, 0, 1).check().steps == 1
    with pytest.raises(CaptureError):
        Window(-1, 0, 1).check()
