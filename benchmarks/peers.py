"""Beside Holistic Trace Analysis and TraceLens: `python -m benchmarks.peers [TRACE ...] [--runs 3] [--write]`.

Each tool is installed in an environment of its own below build/. TraceLens is not on PyPI, where `tracelens`
is another program: it comes from its repository, or from a checkout with --tracelens. What cannot be installed is left
out, and the page says so. Raw events decide who is right where numbers differ.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.files import SHARED
from benchmarks.measure import REPOSITORY, Case, Measured, machine, measure, run
from benchmarks.raw_numbers import calls_of, device_times, events_of, moved_bytes, operations, product
from traceanalyzer import load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.trace import Trace
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.roofline.op_rates import OpWork
from traceanalyzer.timeline.device_work import DeviceWork

PAGE = Path(__file__).with_name("PEERS.md")
HTA = "HolisticTraceAnalysis==0.5.0"
TRACELENS = "TraceLens @ git+https://github.com/AMD-AGI/TraceLens.git@171dd74"
OURS = "diagnose, 1 process"
_TRUTH = Path(__file__).with_name("truth")
_FIXTURES = ("healthy/train", "exposed-communication/bad", "repeated-backward/bad")
_SHARED = ("public/tracelens_b200_eager", "public2/tracelens_h100_qwen05b", "public2/tracelens_h100_timesformer")
_LARGE = ("third/tiny_batch.bad",)  # for speed: its steps cover most of the file for both tools
_GEMMS = ("aten::mm", "aten::addmm", "aten::bmm")
# Two tools agree up to this: HTA rounds times to microseconds, and rates are means of calls or of sums.
_SAME = 0.005
Rows = Iterator[str]


def environment(name: str, requirement: str) -> str:
    """The Python of an environment with the tool, made at the first call; empty where it cannot be installed."""
    folder = REPOSITORY / "build" / f"peer-{name}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    done = folder / "installed"
    if not done.exists():
        # No questions about a password where the repository is out of reach.
        quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
        install = [str(python), "-m", "pip", "install", "--quiet", requirement]
        if subprocess.run(install, check=False, env=quiet).returncode:
            return ""
        done.touch()
    return str(python)


def cases_of(path: Path, tools: dict[str, str]) -> list[Case]:
    """Our diagnosis and the other tools on one file."""
    size = path.stat().st_size
    others = [Case(name, name, path, size, (python, "-m", "benchmarks.peer_runs")) for name, python in tools.items()]
    return [Case("traceanalyzer", OURS, path, size), *others]


def speed(paths: Sequence[Path], tools: dict[str, str], runs: int) -> Rows:
    """Wall time, CPU time and memory of the whole analysis, imports excluded, in turns."""
    yield "| trace | size | tool | wall, median | least | CPU | peak memory | of ours: wall | CPU | memory |"
    yield "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|"
    for path in paths:
        results = measure(cases_of(path, tools), runs)
        yield from (_speed_row(row, results[0]) for row in results)


def _speed_row(row: Measured, ours: Measured) -> str:
    cpu, our_cpu = statistics.median(row.cpu_s), statistics.median(ours.cpu_s)
    ratios = row.median / ours.median, cpu / our_cpu, row.peak_bytes / ours.peak_bytes
    times = f"{row.median:.2f} s | {row.least:.2f} s | {cpu:.2f} s | {row.peak_bytes / 1e6:,.0f} MB"
    shown = " | ".join(f"{ratio:.1f}" for ratio in ratios)
    size = f"{row.case.size / 1e6:.1f} MB"
    return f"| {_name(row.case.path)} | {size} | {row.case.name} | {times} | {shown} |"


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.json.gz')}"


def times(paths: Sequence[Path], tools: dict[str, str]) -> Rows:
    """Busy, idle and overlapped time by each tool, and by the raw events in the window that the tool looks at."""
    yield "| trace | tool | window | busy | raw events | idle | raw events | overlap | raw events | who is right |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|---|"
    for path in paths:
        events = events_of(path)
        device = report_of(analyses_of(load(path))).traces[0].accounting[0]
        parts = device.parts_ns
        busy = sum(ns for part, ns in parts.items() if not part.startswith("idle"))
        window = device.start_ns, device.end_ns
        exposed = parts.get("communication", 0)
        yield _times_row(path, "traceanalyzer", window, busy, device_times(events, window), exposed=exposed)
        for name, python in tools.items():
            found = run(Case(name, name, path, 0, (python, "-m", "benchmarks.peer_runs")))
            limits = _whole(events)
            if "start_us" in found:
                limits = found["start_us"] * 1000, found["end_us"] * 1000 + 1000
            raw = device_times(events, limits)
            overlap = found.get("overlap")
            exposed = None if overlap is None else round(raw["communicating"] * (1 - overlap))
            busy = round(found["busy_us"] * 1000) if "busy_us" in found else None
            yield _times_row(path, name, limits, busy, raw, exposed=exposed)
            yield from (f"| | | {one} |||||||||" for one in found.get("failed", ()))


def _whole(events: Sequence[dict[str, Any]]) -> tuple[int, int]:
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return round(min(e["ts"] for e in work) * 1000), round(max(e["ts"] + e["dur"] for e in work) * 1000)


def _times_row(
    path: Path, tool: str, window: tuple[int, int], busy: int | None, raw: dict[str, int], *, exposed: int | None
) -> str:
    span, all_of = window[1] - window[0], raw["communicating"]
    overlaps = ["" if ns is None or not all_of else f"{1 - ns / all_of:.1%}" for ns in (exposed, raw["exposed"])]
    idle = None if busy is None else span - busy
    same = busy is not None and agrees(busy, raw["busy"])
    if all_of and exposed is not None:
        same = same and abs(exposed - raw["exposed"]) <= _SAME * all_of
    numbers = [_ms(ns) for ns in (span, busy, raw["busy"], idle, span - raw["busy"])]
    verdict = "failed" if busy is None else "agrees" if same else "raw events"
    return f"| {_name(path)} | {tool} | {' | '.join([*numbers, *overlaps])} | {verdict} |"


def _ms(ns: float | None) -> str:
    return "" if ns is None else f"{ns / 1e6:.3f} ms"


def agrees(one: float, other: float) -> bool:
    """Whether two numbers are equal up to rounding."""
    return abs(one - other) <= _SAME * max(abs(one), abs(other))


Shape = tuple[str, int, int, int, int]


def our_gemms(trace: Trace) -> dict[Shape, float]:
    """TFLOP/s of each GEMM by op, batch, M, N and K."""
    sums: dict[Shape, list[int]] = {}
    for row in Analysis(trace).index(OpWork).inputs:
        if row.op in _GEMMS and row.flops is not None:
            dims = [[int(n) for n in shape.split("x")] for shape in row.shapes.split(", ")]
            key = row.op, *product({"name": row.op, "args": {"Input Dims": dims}})
            one = sums.setdefault(key, [0, 0])  # rows differ in strides, too
            one[:] = one[0] + row.calls * row.flops, one[1] + row.gpu_ns
    return {key: flops / ns / 1e3 for key, (flops, ns) in sums.items()}


def raw_gemms(events: Sequence[dict[str, Any]]) -> dict[Shape, tuple[int, float]]:
    """Calls and TFLOP/s of each GEMM, by the shapes and the launches."""
    sums: dict[Shape, list[int]] = {}
    for event, ns in calls_of(events, _GEMMS):
        if event["args"].get("Input Dims"):
            one = sums.setdefault((event["name"], *product(event)), [0, 0, 0])
            one[:] = one[0] + 1, one[1] + operations(event), one[2] + ns
    return {key: (calls, flops / ns / 1e3) for key, (calls, flops, ns) in sums.items()}


def published_gemms(trace: str) -> dict[Shape, float]:
    """What TraceLens's own tests expect (MIT; commits 932e742 and 1e63824): op, batch, M, N, K -> TFLOP/s."""
    with (_TRUTH / "peers" / "tracelens_gemms.csv").open(encoding="utf-8") as file:
        return {
            (row["op"], int(row["batch"]), int(row["m"]), int(row["n"]), int(row["k"])): float(row["tflops"])
            for row in csv.DictReader(file)
            if row["trace"] == trace
        }


def gemms(paths: Sequence[Path], tools: dict[str, str]) -> Rows:
    """Rates of all GEMMs with shapes, by us, by TraceLens (run here, or else as published) and by the raw events."""
    yield "| trace | GEMM (batch, M, N, K) | calls | raw events | traceanalyzer | TraceLens | who is right |"
    yield "|---|---|--:|--:|--:|--:|---|"
    for path in paths:
        theirs = published_gemms(path.name.removesuffix(".json.gz"))
        if python := tools.get("tracelens"):
            found = run(Case("", "tracelens", path, 0, (python, "-m", "benchmarks.peer_runs")))
            theirs = {(op, int(b), int(m), int(n), int(k)): rate for op, b, m, n, k, _, rate in found["gemms"]}
        ours = our_gemms(load(path))
        for key, (calls, rate) in raw_gemms(events_of(path)).items():
            named = {"traceanalyzer": ours.get(key), "TraceLens": theirs.get(key)}
            wrong = [name for name, value in named.items() if value is not None and not agrees(value, rate)]
            verdict = f"raw events, not {' and '.join(wrong)}" if wrong else "agrees"
            shown = " | ".join("" if value is None else f"{value:.4g}" for value in named.values())
            yield f"| {_name(path)} | {key[0]} {key[1:]} | {calls} | {rate:.4g} TFLOP/s | {shown} | {verdict} |"


def amd_units(folder: Path) -> Rows:
    """AMD's stand-alone unit cases: links, the op that takes most time, its rate, and the reference's."""
    yield "| case | linked | largest op: reference | ours | raw rate | our rate | reference | raw events agree with |"
    yield "|---|--:|---|---|--:|--:|--:|---|"
    with (_TRUTH / "peers" / "amd_units.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield unit_row(folder / f"{row['case']}.json.gz", row)


def unit_row(path: Path, row: dict[str, str]) -> str:
    """One case."""
    trace = load(path)
    analysis = Analysis(trace)
    work, inputs = analysis.index(DeviceWork), analysis.index(OpWork).inputs
    linked = ((work.call >= 0) & (work.op >= 0)).mean()
    largest = next(one for one in inputs if one.op == row["op"])
    unit = "GB/s" if "GB/s" in row["of"] else "TFLOP/s"
    counted = [
        (moved_bytes(event) if unit == "GB/s" else operations(event) / 1e3, ns)
        for event, ns in calls_of(events_of(path), [row["op"]])
    ]
    raw = sum(amount for amount, _ in counted) / sum(ns for _, ns in counted)
    ours = largest.gbps if unit == "GB/s" else largest.tflops
    theirs = float(row["percent"]) / 100 * float(row["of"].split()[0]) if row["percent"] else None
    shown = [f"{rate:,.1f} {unit}" if rate else "no rate" for rate in (raw, ours)]
    reference = row["of"] if theirs is None else f"{row['percent']} % of {row['of']}: {theirs:,.1f}"
    verdict = "same op" if inputs[0].op == row["op"] else "another op"
    verdict += ", our rate" * (ours is not None and agrees(ours, raw))
    verdict += ", its rate" * (theirs is not None and abs(theirs - raw) <= 0.02 * raw)
    cells = [path.name.split(".")[0], f"{linked:.0%}", row["op"], inputs[0].op, *shown, reference, verdict]
    return f"| {' | '.join(cells)} |"


def page(paths: Sequence[Path], tools: dict[str, str], runs: int) -> Rows:
    """The whole page, as it comes."""
    yield f"# Beside other tools\n\n{machine()}; medians of {runs} runs, taken in turns, each in a fresh process;"
    yield "imports are done before the clock starts. Memory is the peak above the interpreter with its imports."
    yield "CPU time is that of all processes; on a machine with other work it compares better than wall time."
    yield "`python -m benchmarks.peers --write` installs the tools and writes this page."
    for name in {"hta", "tracelens"} - set(tools):
        yield f"\n`{name}` could not be installed here and was not run."
    yield "\n## Speed and memory\n"
    yield from speed([*paths, *_existing(_LARGE)], tools, runs)
    yield "\n## Times of the device\n"
    yield "Each tool looks at a window of its own; the raw events are those in that window. HTA rounds times down to"
    yield "whole microseconds by default, so each kernel loses half of one on average.\n"
    yield from times(paths, tools)
    yield "\n## Rates of GEMMs\n"
    if "tracelens" not in tools:
        yield "TraceLens's column is what its own tests expect of the same files.\n"
    yield from gemms(paths, tools)
    units = SHARED / "public2" / "amd_units"
    if units.exists():
        yield "\n## AMD's unit cases\n"
        yield "The reference is that of TraceLens's agent evaluation, of an MI300X; its rates follow from"
        yield "its percentages of 708 TFLOP/s, which its GEMM cases fit, or 5,300 GB/s. The hand-made conv cases have"
        yield "types (`Float`) and strides (all 1) that torch does not write: they give us no rate.\n"
        yield from amd_units(units)


def _existing(names: Sequence[str]) -> list[Path]:
    paths = [SHARED / f"{name}.json.gz" for name in names]
    return [path for path in paths if path.exists()]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, help="default: fixtures, and shared traces that are there")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tracelens", default=TRACELENS, help="what pip installs, such as a checkout")
    parser.add_argument("--write", action="store_true", help="write benchmarks/PEERS.md")
    options = parser.parse_args()
    wanted = {"hta": HTA, "tracelens": options.tracelens}
    tools = {name: python for name, text in wanted.items() if (python := environment(name, text))}
    fixtures = [REPOSITORY / "fixtures" / f"{name}.json.gz" for name in _FIXTURES]
    paths = [path.resolve() for path in options.traces] or [*fixtures, *_existing(_SHARED)]
    lines = []
    for line in page(paths, tools, options.runs):
        print(line, flush=True)
        lines.append(line)
    if options.write:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
