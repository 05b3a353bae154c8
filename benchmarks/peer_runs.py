"""One run of another tool on one trace, in that tool's environment: `python -m benchmarks.peer_runs hta TRACE`.

It speaks as benchmarks/subjects.py does, so that benchmarks/measure.py measures it: ready, go, and a line of JSON with
the numbers that the tool reports. It imports nothing of traceanalyzer.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

Numbers = dict[str, Any]
HTA_VIEWS = (
    "get_temporal_breakdown",
    "get_comm_comp_overlap",
    "get_gpu_kernel_breakdown",
    "get_idle_time_breakdown",
    "get_cuda_kernel_launch_stats",
    "get_queue_length_summary",
)


def hta(path: str) -> Callable[[], Numbers]:
    """Holistic Trace Analysis: breakdowns of time, kernels and idle time, overlap, queue and launches."""
    logging.disable()
    from hta.trace_analysis import TraceAnalysis

    def run() -> Numbers:
        analysis = TraceAnalysis({0: path}, "", include_last_profiler_step=True)
        rows = analysis.t.get_trace(0)
        work = rows[rows["stream"] >= 0]
        begin = int(analysis.t.min_ts)
        numbers: Numbers = {
            "events": len(rows),
            "start_us": begin + int(work["ts"].min()),
            "end_us": begin + int((work["ts"] + work["dur"]).max()),
            "failed": [],
        }
        for name in HTA_VIEWS:
            view = getattr(analysis, name)
            try:
                answer = view() if name == "get_queue_length_summary" else view(visualize=False)
            except Exception as error:  # what fails is counted, and the others go on
                numbers["failed"].append(f"{name}: {type(error).__name__}")
                continue
            if name == "get_temporal_breakdown":
                # kernel_time holds the idle time, too.
                numbers["busy_us"] = float((answer["compute_time(us)"] + answer["non_compute_time(us)"]).iloc[0])
            elif name == "get_comm_comp_overlap":
                overlap = float(answer["comp_comm_overlap_pctg"].iloc[0])
                numbers["overlap"] = None if math.isnan(overlap) else overlap / 100
        return numbers

    return run


def tracelens(path: str) -> Callable[[], Numbers]:
    """TraceLens: its report as CSV files."""
    from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch

    def run() -> Numbers:
        with tempfile.TemporaryDirectory() as folder:
            tables = generate_perf_report_pytorch(profile_json_path=path, output_csvs_dir=folder)
        timeline = tables["gpu_timeline"].set_index("type")["time ms"]
        gemms = tables.get("GEMM")
        rows = [] if gemms is None else gemms.to_dict("records")
        keys = ("param: B", "param: M", "param: N", "param: K")
        return {
            "events": 0,
            "busy_us": float(timeline["busy_time"]) * 1000,
            "gemms": [
                [row["name"], *(row.get(key, 1) for key in keys), row["name_count"], row["TFLOPS/s_mean"]]
                for row in rows
            ],
        }

    return run


TOOLS = {"hta": hta, "tracelens": tracelens}


def main() -> None:
    """Run the tool once; what it prints itself is dropped."""
    name, path = sys.argv[1:]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run = TOOLS[name](path)
    print("ready", flush=True)
    sys.stdin.readline()
    start, before = time.perf_counter(), os.times()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        numbers = run()
    seconds, after = time.perf_counter() - start, os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    print(json.dumps({"seconds": seconds, "cpu": cpu, **numbers}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
