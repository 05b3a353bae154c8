"""How much communication is found when no kernel's name tells: `python -m benchmarks.renamed FOLDER..`

Every folder holds the ranks of jobs as NAME.rankN.json.gz or rankN.json.gz. Every kernel that communicates by its name
is renamed to a hash of it; `blind` renames the ops that launched it as well. Printed are the shares of communication
time that are found and of computing time that is accused, with all ranks' files and with each alone.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traceanalyzer.job.cross_rank_indexes import introduce
from traceanalyzer.job.ranks import Here
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.names import COMMUNICATING_OP, COMMUNICATION, SPEAKING_OP

KINDS_OF_TIME = ("found", "there", "accused", "computing")
WAYS = ("alone", "together", "alone, blind", "together, blind")


def jobs_in(folder: Path) -> dict[str, dict[int, Path]]:
    """Job -> rank -> file; a file without a rank is a job of its own."""
    jobs: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in sorted(folder.rglob("*.json.gz")):
        rank = re.search(r"rank(\d+)\.", path.name)
        job = path.name[: rank.start()] if rank else path.name
        jobs[f"{path.parent.relative_to(folder.parent)}/{job}"][int(rank[1]) if rank else 0] = path
    return {name: ranks for name, ranks in jobs.items() if all(path.suffix == ".gz" for path in ranks.values())}


def renamed(trace: Trace, *, blind: bool) -> Trace:
    """The trace without the names that tell of communication."""
    gpu = _hashed(trace.gpu, COMMUNICATION.search)
    speaks = re.compile(f"{COMMUNICATING_OP.pattern}|{SPEAKING_OP.pattern}", re.IGNORECASE)
    cpu = _hashed(trace.cpu, speaks.search) if blind else trace.cpu
    return trace.with_frames(gpu=gpu, cpu=cpu)


def _hashed(frame: pd.DataFrame, tells: Callable[[str], object]) -> pd.DataFrame:
    names = frame["name"].cat.categories
    hashes = {name: hashlib.sha256(name.encode()).hexdigest()[:16] for name in names if tells(name)}
    return frame.assign(name=frame["name"].cat.rename_categories(hashes))


def measured_of(ranks: Mapping[int, Path], ways: Sequence[str] = WAYS) -> list[NDArray[np.int64]]:
    """int64 (4,) for each way: ns of `KINDS_OF_TIME` in all ranks of a job."""
    whole = {rank: load_file(path) for rank, path in ranks.items()}
    return [_measured(whole, way) for way in ways]


def _measured(whole: Mapping[int, Trace], way: str) -> NDArray[np.int64]:
    hidden = {rank: renamed(trace, blind="blind" in way) for rank, trace in whole.items()}
    analyses = {rank: Analysis(trace) for rank, trace in hidden.items()}
    if way.startswith("together"):
        introduce(Here(analyses))
    sums: NDArray[np.int64] = np.sum(
        [_counted(analysis, _new_names(hidden[rank], whole[rank])) for rank, analysis in analyses.items()], axis=0
    )
    return sums


def _new_names(hidden: Trace, whole: Trace) -> frozenset[str]:
    return frozenset(set(hidden.gpu["name"].cat.categories) - set(whole.gpu["name"].cat.categories))


def _counted(analysis: Analysis, truth: frozenset[str]) -> NDArray[np.int64]:
    trace, work = analysis.trace, analysis.index(DeviceWork)
    dur_ns = work.end_ns - work.start_ns
    there = Texts.column(trace.gpu, "name", work.row).meets(truth.__contains__)
    said = work.kind == KINDS.index("communication")
    computing = (work.kind == 0) & ~there | (said & ~there)
    parts = (said & there, there, said & ~there, computing)
    return np.array([dur_ns[chosen].sum() for chosen in parts], np.int64)


def main(folders: list[str]) -> None:
    """Print each job, and all of them together."""
    total = [np.zeros(len(KINDS_OF_TIME), np.int64) for _ in WAYS]
    for name, ranks in (job for folder in folders for job in jobs_in(Path(folder)).items()):
        sums = measured_of(ranks)
        total = [before + more for before, more in zip(total, sums, strict=True)]
        _say(name, sums)
    _say("all", total)


def _say(name: str, sums: Sequence[NDArray[np.int64]]) -> None:
    shares = "  ".join(
        f"{way}: {_share(found, there)} found, {_share(accused, computing)} accused"
        for way, (found, there, accused, computing) in zip(WAYS, (one.tolist() for one in sums), strict=True)
    )
    print(f"{name}: {sums[0][1] / 1e6:.1f} ms; {shares}", flush=True)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


if __name__ == "__main__":
    main(sys.argv[1:])
