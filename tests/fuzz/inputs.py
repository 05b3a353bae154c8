"""What users hand over beside a trace of one rank, broken at random: configuration, baselines, archives, merged files.

Each kind writes its file into a folder and uses it as a user would; it returns the paths that a find would be kept by.
"""

import io
import json
import os
import random
import re
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from tests.fuzz.cases import case, content
from tests.fuzz.changes import CHANGES, odd
from tests.fuzz.checks import check_frames, check_report
from tests.fuzz.damages import DAMAGES, packed, unmarked, written
from tests.support.paths import REPOSITORY
from traceanalyzer.cli.app import cli
from traceanalyzer.comparison.baseline import baseline_bytes
from traceanalyzer.comparison.compare import side_of
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.step_times import RECORDING
from traceanalyzer.read.load import load_job

_TRACE = REPOSITORY / "fixtures" / "implicit-sync" / "bad.json.gz"
_CONFIG = """[tool.traceanalyzer]
fail-on = "medium"
select = ["implicit-sync", "cold-start"]
ignore = [{rule = "cold-start", reason = "one epoch only", until = 2027-01-31}]
step-ms = 2.5
[tool.traceanalyzer.limits]
"scheduler-gap.min_gap_ns" = 20000
"""
_TOML_VALUES = (
    *('""', '"x"', "0", "-1", "1e400", "nan", "inf", "true", "[]", "{}", "[[]]", "9" * 400, "0.0", '"\\u0000"'),
    *("1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", '{a = {b = ["c"]}}', "[{rule = 1}]", '["a", 2]'),
)


def try_one(rng: random.Random, folder: Path) -> None:
    """Break one input and use it.

    Raises:
        Exception: anything that is no refusal in our own words is a find.
    """
    rng.choice(KINDS)(rng, folder)


def _configuration(rng: random.Random, folder: Path) -> None:
    lines = _CONFIG.splitlines()
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        key = lines[at].partition("=")[0].strip()
        value = rng.choice((*_TOML_VALUES, json.dumps(str(odd(rng)))))
        lines[at] = rng.choice((f"{key} = {value}", "", f"{value} = {value}", lines[at].replace("[", "[[", 1)))
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    (folder / "pyproject.toml").write_bytes(_damaged(rng, data))
    _use(folder, "diagnose", _TRACE, *(("--fail-on", "low") if rng.random() < 0.3 else ()))


def _baseline(rng: random.Random, folder: Path) -> None:
    table = pq.read_table(io.BytesIO(_saved()))
    key, described = next(iter((table.schema.metadata or {}).items()))
    if rng.random() < 0.6:
        table = table.replace_schema_metadata({key: _changed_json(rng, described)})
    else:
        name = rng.choice(table.column_names)
        rest = table.drop_columns([name])
        column = pa.array([None] * len(table)) if rng.random() < 0.5 else pa.array(["x"] * len(table))
        table = rng.choice((rest, rest.append_column(name, column), table.slice(0, rng.randint(0, 9))))
    pq.write_table(table, path := folder / "kept.parquet")
    if rng.random() < 0.2:
        path.write_bytes(_damaged(rng, path.read_bytes()))
    _use(folder, "compare", f"baseline:{path}", _TRACE)


def _known_findings(rng: random.Random, folder: Path) -> None:
    (folder / "old.json").write_bytes(_damaged(rng, _changed_json(rng, _report())))
    _use(folder, "diagnose", _TRACE, "--baseline", folder / "old.json", "--fail-on", "low", "--no-config")


def _recording(rng: random.Random, folder: Path) -> None:
    told = {"before_ms": [2.0, 2.1], "after_ms": [2.2], "unit": "optimizer step", "environment": {"RANK": "0"}}
    header, events = content(_TRACE)
    header = {**header, RECORDING: json.loads(_changed_json(rng, orjson.dumps(told), deep=False))}
    (folder / "trace.json").write_bytes(_damaged(rng, written(rng, header, events), often=0.1))
    _use(folder, "diagnose", folder / "trace.json", "--no-config", *(("--verbose",) * (rng.random() < 0.3)))


def _merged(rng: random.Random, folder: Path) -> None:
    header, events = content(_TRACE)
    some = orjson.loads(orjson.dumps(events[: rng.choice((30, 300))]))
    merge, both = rng.choice((_labelled, _shifted, _fused, _unmarked_merge)), []
    for rank in range(rng.choice((1, 2, 3))):
        both += [merge(orjson.loads(orjson.dumps(event)), rank) for event in some]
    for _ in range(rng.choice((0, 1, 3, 10))):
        rng.choice(CHANGES)(rng, header, both)
    (path := folder / "merged.json").write_bytes(packed(rng, _damaged(rng, written(rng, header, both))))
    _read_job(path, diagnosed=rng.random() < 0.3)


def _archive(rng: random.Random, folder: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=rng.choice(("w", "w:gz"))) as archive:
        for number in range(rng.choice((0, 1, 1, 1, 1, 1, 2))):
            data = case(rng.randrange(10**6))
            entry = tarfile.TarInfo(rng.choice((f"{number}.json", f"{number}.json.gz", f"a/{number}.json", "readme")))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    (path := folder / "trace.tar").write_bytes(_damaged(rng, packed(rng, made.getvalue())))
    _read_job(path, diagnosed=False)


KINDS: tuple[Callable[[random.Random, Path], None], ...] = (
    *(_configuration, _baseline, _known_findings, _recording),
    *(_merged, _archive),
)


# -- how they are used -----------------------------------------------------------------------------------


def _use(folder: Path, *arguments: object) -> None:
    before = Path.cwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    finally:
        os.chdir(before)
    if isinstance(result.exception, TraceAnalyzerError):
        str(result.exception).encode()
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception


def _read_job(path: Path, *, diagnosed: bool) -> None:
    try:
        job = load_job(path, jobs=1)
    except TraceAnalyzerError as error:
        str(error).encode()
        return
    for trace in job.values():
        check_frames(trace)
    if diagnosed:
        check_report(job)


# -- how they are broken ---------------------------------------------------------------------------------


def _damaged(rng: random.Random, data: bytes, often: float = 0.3) -> bytes:
    return rng.choice(DAMAGES)(rng, data) if rng.random() < often else data


def _changed_json(rng: random.Random, text: bytes, *, deep: bool = True) -> bytes:
    document = {"": json.loads(text)}
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        holder: Any = document
        key: Any = ""
        while isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.8:
            holder = holder[key]
            key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        if rng.random() < 0.2 and isinstance(holder, dict) and holder is not document:
            del holder[key]
        else:
            holder[key] = odd(rng)
    whole = json.dumps(document[""])
    changed = re.sub(r'"@(object|list) (\d+)@"', unmarked, whole) if deep else whole
    return changed.encode("utf-8", "surrogatepass")


def _labelled(event: Any, rank: int) -> Any:
    return {**event, "pid": f"[TP{rank:02d}-EP00] {event.get('pid')}"}


def _shifted(event: Any, rank: int) -> Any:
    for key in ("pid", "tid"):
        value = event.get(key)
        event[key] = value + rank * 10**8 if isinstance(value, int) else f"{value}_{rank * 10**8}"
    if event.get("name") == "process_name":
        event["args"]["name"] += f"_rank{rank}"
    return event


def _fused(event: Any, rank: int) -> Any:
    args = event.setdefault("args", {})
    args |= {"rank": rank, "pid_raw": event.get("pid")}
    if "correlation" in args:
        args |= {"correlation_raw": args["correlation"], "correlation": args["correlation"] + rank * 10**7}
    return event


def _unmarked_merge(event: Any, rank: int) -> Any:
    return {**event, "pid": event["pid"] + rank} if isinstance(event.get("pid"), int) else event


@cache
def _saved() -> bytes:
    return baseline_bytes(side_of([_TRACE]))


@cache
def _report() -> bytes:
    return CliRunner().invoke(cli, ["diagnose", str(_TRACE), "--format", "json"]).stdout_bytes
