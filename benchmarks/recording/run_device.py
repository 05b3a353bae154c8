"""Runs the programs beside this file with and without the recorder, and writes what came of it.

    python benchmarks/recording/run_device.py --part plain --minutes 8 --out DIR

Parts: `plain` (six programs, three times each without and with `record`), `faults` (six faults and a control, twice),
`steps` (unusual steps, and programs that end badly), `again` (ten programs, recorded twice, and without execution
traces; the profiler's switches), `ranks` (two processes on two GPUs). Each leaves PART.json, PART.md and PART.tar in
DIR. Programs run three at a time until they need the GPU, and one at a time from there on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNNING = 3  # programs that import their libraries at the same time
SECONDS = 200  # for one run; then it is ended
TAR_BYTES = 15 << 20
STEPS = 150
METADATA = "traceanalyzer_recording"


@dataclass(frozen=True)
class Run:
    """One run of a program: recorded with `options`, or without a recorder where they are None."""

    script: str
    program: str
    number: int
    options: dict[str, Any] | None
    steps: int = STEPS
    label: str = ""
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        kind = self.label or ("plain" if self.options is None else "recorded")
        return f"{self.program}.{kind}.{self.number}"


@dataclass
class Driver:
    """Runs programs within the time that there is."""

    out: Path
    ends_at: float
    python: str
    results: list[dict[str, Any]] = field(default_factory=list)

    def run_all(self, part: str, runs: list[Run]) -> None:
        """All runs, three at a time; what there is is written after each."""
        with tempfile.TemporaryDirectory(prefix="recording-") as folder:
            self.folder = Path(folder)
            with ThreadPoolExecutor(RUNNING) as pool:
                for result in pool.map(self.run_one, runs):
                    self.results.append(result)
                    print(json.dumps({k: v for k, v in result.items() if k in _SHOWN}), flush=True)
                    self._write(part)
            self._pack(part)

    def run_one(self, wanted: Run) -> dict[str, Any]:
        """Times, exit code and what was recorded; never an error."""
        result: dict[str, Any] = {"name": wanted.name, "program": wanted.program, "kind": wanted.label}
        left = self.ends_at - time.time()
        if left < 20:
            return {**result, "skipped": "no time is left"}
        report, trace = self.folder / f"{wanted.name}.own.json", self.folder / f"{wanted.name}.json.gz"
        command = [*(self.python, *wanted.words, str(HERE / f"{wanted.script}.py"), wanted.program, str(wanted.steps))]
        if wanted.options is not None:
            options = {"path": str(trace), "force": True, **wanted.options}
            command = [self.python, str(HERE / "record_only.py"), json.dumps(options), *command]
        env = {
            **os.environ,
            "RECORDING_RESULT": str(report),
            "RECORDING_LOCK": str(self.folder / "lock"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
            "HF_HUB_OFFLINE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
        }
        began = time.time()
        with open(self.folder / f"{wanted.name}.err", "w+", encoding="utf-8", errors="replace") as errors:
            started = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )
            try:
                result["exit"] = started.wait(min(SECONDS, left))
            except subprocess.TimeoutExpired:
                result["exit"] = "timeout"
                os.killpg(started.pid, signal.SIGKILL)  # with all that it started, which would hold the lock
                started.wait()
            errors.seek(0)
            result["stderr"] = _end_of(errors.read())
        result["wall_s"] = round(time.time() - began, 2)
        try:
            if report.exists():
                result |= _own(json.loads(report.read_text()), result["wall_s"])
            traces = sorted(self.folder.glob(f"{wanted.name}*.json.gz"))
            result["files"] = {path.name: path.stat().st_size for path in traces}
            kept = [path for path in traces if not path.name.endswith(".et.json.gz")]
            if kept:
                result |= _recorded(kept[0])
                result["ranks"] = {path.name: _rank(path) for path in kept}
        except Exception as error:
            result["problem"] = repr(error)
        return result

    def _write(self, part: str) -> None:
        (self.out / f"{part}.json").write_text(json.dumps(self.results, separators=(",", ":")))
        (self.out / f"{part}.md").write_text(_table(self.results))

    def _pack(self, part: str) -> None:
        """The first trace of each program, in files that are small enough to travel."""
        number, size, archive = 0, 0, None
        seen: set[str] = set()
        for result in self.results:
            key = f"{result['program']}.{result['kind']}"
            for name in result.get("files", {}):
                path = self.folder / name
                again = key in seen and (part not in ("faults", "again") or name.endswith(".et.json.gz"))
                if again or not path.exists():
                    continue
                if archive is None or size + path.stat().st_size > TAR_BYTES:
                    if archive is not None:
                        archive.close()
                    number, size = number + 1, 0
                    archive = tarfile.open(self.out / f"{part}-{number}.tar", "w")  # noqa: SIM115
                archive.add(path, arcname=name)
                size += path.stat().st_size
            if result.get("files"):
                seen.add(key)
        if archive is not None:
            archive.close()


_SHOWN = ("name", "exit", "wall_s", "own_ms", "own_last_ms", "before_ms", "unit", "doubt", "skipped", "problem")


def _end_of(text: str) -> str:
    lines = [line for line in text.splitlines() if "USDT" not in line and "Warning" not in line]
    return "\n".join(lines)[-1500:]


def _own(report: dict[str, Any], wall_s: float) -> dict[str, Any]:
    """The program's own times: the median of the steps that are timed before the window, and of the last ones."""
    times = report["step_ms"]
    return {
        "own_ms": round(median(times[10:34] or times), 4),
        "own_mean_ms": round(sum(times[10:34] or times) / len(times[10:34] or times), 4),
        "own_last_ms": round(median(times[-40:]), 4),
        "own_step_ms": [round(ms, 2) for ms in times],
        "section_s": round(report["section_s"], 2),
        "busy_s": round(wall_s - report["waited_s"], 2),
    }


def _recorded(path: Path) -> dict[str, Any]:
    with gzip.open(path) as stream:
        document = json.load(stream)
    told = document[METADATA]
    steps = [
        event["dur"] / 1e3
        for event in document["traceEvents"]
        if str(event.get("name", "")).startswith("ProfilerStep#") and event.get("cat") == "user_annotation"
    ]
    result = {
        "before_ms": [round(ms, 4) for ms in told["before_ms"]],
        "after_ms": [round(ms, 4) for ms in told["after_ms"]],
        "unit": told["unit"],
        "doubt": told["doubt"],
        "settled": told["settled"],
        "recorded_steps": told["recorded_steps"],
        "marked_steps": len(steps),
        "profiled_ms": round(median(steps), 4) if steps else None,
        "measured": told["measured"],
    }
    et = path.with_name(path.name.removesuffix(".json.gz") + ".et.json.gz")
    if et.exists():
        result["joined"] = _joined(et)
    return result


def _rank(path: Path) -> dict[str, Any]:
    """The rank as its trace says it, and how many steps it has."""
    with gzip.open(path) as stream:
        document = json.load(stream)
    told, job = document[METADATA], document.get("distributedInfo") or {}
    return {
        "rank": told["rank"],
        "world": told["world"],
        "profiler_rank": job.get("rank"),
        "recorded_steps": told["recorded_steps"],
        "timed_again": bool(told["after_ms"]),
    }


def _joined(path: Path) -> dict[str, int]:
    """How many ops of the profiler have a node of the execution trace with their id and name."""
    with gzip.open(path) as stream:
        document = json.load(stream)
    names = {
        entry["value"]: node["name"]
        for node in document["nodes"]
        for entry in node["attrs"]
        if entry["name"] == "rf_id"
    }
    ops = [event for event in document["ops"] if event.get("cat") == "cpu_op"]
    joined = [op for op in ops if names.get(op["args"].get("Record function id")) == op["name"]]
    return {"nodes": len(document["nodes"]), "ops": len(ops), "joined": len(joined)}


def _table(results: list[dict[str, Any]]) -> str:
    head = "run | exit | unit | measured ms | own ms | own, last 40 | profiled ms | section s | run s | ET ops joined"
    lines = [f"| {head} |\n", "|---|---|---|--:|--:|--:|--:|--:|--:|--:|\n"]
    for one in results:
        measured = one.get("before_ms")
        joined = one.get("joined")
        cells = [
            *(one["name"], one.get("exit", one.get("skipped")), one.get("unit", "")),
            f"{median(measured):.3f}" if measured else "",
            *(one.get("own_ms", ""), one.get("own_last_ms", ""), one.get("profiled_ms", "")),
            *(one.get("section_s", ""), one.get("busy_s", "")),
            f"{joined['joined']} of {joined['ops']}" if joined else "",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |\n")
    return "".join(lines)


PLAIN = ("timm_resnet", "hf_trainer", "accelerate_bert", "lightning_vit", "compiled_llama", "infer_towers")
FAULTS = ("slow_loader", "second_process", "garbage", "alternating", "evaluates", "busy_thread", "healthy")
STEPPING = ("graphs", "decode", "inference", "two_optimizers", "accumulation", "settles")
ENDING = ("asserts", "raises", "terminated", "own_profiler", "late_profiler")
SWITCHES = ("shapes", "stacks", "memory")


def _plain() -> list[Run]:
    return [
        Run("plain", program, number, options) for number in (1, 2, 3) for program in PLAIN for options in (None, {})
    ]


def _faults() -> list[Run]:
    few = {"busy_thread": 84}  # its steps take 0.7 s
    runs = [Run("faulty", program, number, {}, few.get(program, STEPS)) for number in (1, 2) for program in FAULTS]
    return runs + [Run("faulty", program, 1, None, few.get(program, STEPS)) for program in FAULTS]


def _steps() -> list[Run]:
    many = {"graphs": 1200, "decode": 300, "settles": 200}
    runs = [Run("stepping", program, 1, {}, many.get(program, STEPS)) for program in (*STEPPING, *ENDING)]
    return runs + [Run("stepping", program, 1, None, many.get(program, STEPS)) for program in ENDING]


def _again() -> list[Run]:
    programs = [
        *(("plain", name) for name in PLAIN),
        *(("faulty", "healthy"), ("stepping", "accumulation")),
        *(("stepping", "inference"), ("stepping", "two_optimizers")),
    ]
    slow = [Run("faulty", "slow_loader", number, {}) for number in (1, 2)]
    kinds = [(1, {}, "recorded"), (1, {"tensors": False}, "no-tensors"), (2, {}, "recorded")]
    pairs = [
        Run(script, name, number, options, label=label) for number, options, label in kinds for script, name in programs
    ]
    switches = [
        Run("plain", name, 1, {"tensors": False, switch: True}, label=switch)
        for name in ("hf_trainer", "timm_resnet", "infer_towers")
        for switch in SWITCHES
    ]
    return slow + pairs + switches


def _ranks() -> list[Run]:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return [
        Run("ranks", "ddp_resnet", number, options, 110, words=launcher)
        for number in (1, 2, 3)
        for options in (None, {})
    ] + [Run("ranks", "spawned", 1, {}, 110), Run("ranks", "spawned", 1, {}, 44, label="short")]


PARTS = {"plain": _plain, "faults": _faults, "steps": _steps, "again": _again, "ranks": _ranks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", help="programs, by comma")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    runs = [run for run in PARTS[given.part]() if not given.only or run.program in given.only.split(",")]
    Driver(given.out, time.time() + given.minutes * 60, given.python).run_all(given.part, runs)


if __name__ == "__main__":
    main()
