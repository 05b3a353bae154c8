"""Compares what two versions of the package report: `python tools/compare_findings.py BASE [PATHS...]`.

    python tools/compare_findings.py main~5 fixtures ../shared/traces     # against a commit
    python tools/compare_findings.py --record answers.json fixtures       # store this tree's answers
    python tools/compare_findings.py answers.json fixtures                # against stored answers

Compared are the findings of each trace and job in their order (rule, cause, place, severity, saving in points) and the
verdict's Step and Limit. `--texts` also compares messages, remedies, costs and evidence. Exit code 1 if any differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
Answer = Mapping[str, Sequence[str]]
_RANK = re.compile(r"^(.*?)[.-]?rank\d+$")
# Execution traces, tables, and recordings whose timing the observer distorted.
_LEFT_OUT = re.compile(r"\.(table|et)\.json|/et/|/dataflow/|/broken/")


def answers(inputs: Sequence[str]) -> dict[str, Answer]:
    """Each input -> its lines: "findings", "verdict" and "texts". Diagnosed by the package that Python imports.

    An input is the path of a trace, or several separated by os.pathsep: the ranks of a job.
    """
    return {name: _answer(name.split(os.pathsep)) for name in inputs}


def _answer(files: Sequence[str]) -> Answer:
    from traceanalyzer import diagnose, load, load_job
    from traceanalyzer.model.errors import TraceAnalyzerError

    try:
        report = diagnose(load(files[0]) if len(files) == 1 else load_job(*files))
    except TraceAnalyzerError as problem:
        return {"findings": [f"refused: {type(problem).__name__}"], "verdict": [], "texts": []}
    findings, texts = [], []
    for finding in report.findings:
        saving = finding.saving
        place = f"{finding.rule}: {finding.cause} by {finding.by}, rank {finding.rank}"
        points = "no saving" if saving is None else f"{100 * saving.share:.0f} %"
        findings.append(f"{place}, {finding.severity}, {points}")
        evidence = json.dumps(dict(finding.evidence), default=str, sort_keys=True)
        texts.append(f"{place}: {finding.cost_ns} ns: {finding.message} -> {finding.advice} {evidence}")
    verdict = [
        f"rank {trace.rank}: {part}"
        for trace in report.traces
        for part in str(trace.verdict).split("; ")
        if part.startswith(("Step", "Limit"))
    ]
    return {"findings": findings, "verdict": verdict, "texts": texts}


def inputs_in(paths: Sequence[Path], share: int) -> list[str]:
    """Traces below the paths, the ranks of a job joined by os.pathsep; with a share of n every n-th, chosen by name."""
    files = sorted(
        file
        for path in paths
        for file in (path.rglob("*.json.gz") if path.is_dir() else [path])
        if not _LEFT_OUT.search(str(file))
    )
    groups: dict[str, list[str]] = {}
    for file in files:
        job = _RANK.match(file.name.removesuffix(".json.gz"))
        name = f"{file.parent}/{job[1]}" if job else str(file)
        groups.setdefault(name, []).append(str(file.resolve()))
    chosen = [group for group in groups.values() if zlib.crc32(Path(group[0]).name.encode()) % share == 0]
    return [os.pathsep.join(group) for group in chosen]


def diagnose_all(inputs: Sequence[str], package: Path, processes: int) -> dict[str, Answer]:
    """Answers of the package in a folder, each share of the inputs in a process of its own."""
    parts = [inputs[start::processes] for start in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        results = pool.map(_in_process, parts, [package] * processes)
        return {_name(files): answer for result in results for files, answer in result.items()}


def _name(files: str) -> str:
    """The same for every clone: paths within this one are relative to it."""
    return files.replace(f"{ROOT}{os.sep}", "")


def _in_process(inputs: Sequence[str], package: Path) -> dict[str, Answer]:
    with TemporaryDirectory() as folder:
        listed, written = Path(folder) / "inputs.json", Path(folder) / "answers.json"
        listed.write_text(json.dumps(inputs))
        subprocess.run(
            [sys.executable, __file__, "--worker", written, listed],
            cwd=package,
            env={**os.environ, "PYTHONPATH": str(package)},
            check=True,
        )
        result: dict[str, Answer] = json.loads(written.read_text())
    return result


def at_commit(commit: str, inputs: Sequence[str], processes: int) -> dict[str, Answer]:
    """Answers of the package as it is in a commit."""
    with TemporaryDirectory() as folder:
        code = Path(folder) / "code"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", code, commit], cwd=ROOT, check=True)
        try:
            return diagnose_all(inputs, code, processes)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", code], cwd=ROOT, check=True)


def differences(before: Answer, after: Answer, texts: bool) -> Iterator[str]:
    """A line for each finding or sentence that only one side has, and one if only their order differs."""
    for part in ("verdict", "findings", *(["texts"] if texts else [])):
        old, new = before[part], after[part]
        yield from (f"- {line}" for line in old if line not in new)
        yield from (f"+ {line}" for line in new if line not in old)
        if old != new and sorted(old) == sorted(new):
            yield f"{part}: other order"


def main() -> int:
    """The command line."""
    if sys.argv[1:2] == ["--worker"]:
        inputs = json.loads(Path(sys.argv[3]).read_text())
        Path(sys.argv[2]).write_text(json.dumps(answers(inputs)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="a commit, or a file written by --record")
    parser.add_argument("paths", type=Path, nargs="*", default=[ROOT / "fixtures"], help="traces and folders")
    parser.add_argument("--record", action="store_true", help="write this tree's answers to BASE")
    parser.add_argument("--texts", action="store_true", help="compare messages, remedies, costs and evidence, too")
    parser.add_argument("--share", type=int, default=1, help="only every n-th trace, chosen by its name")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    inputs = inputs_in(options.paths, options.share)
    after = diagnose_all(inputs, ROOT, options.jobs)
    if options.record:
        Path(options.base).write_text(json.dumps(after, indent=1))
        return 0
    if Path(options.base).is_file():
        before = json.loads(Path(options.base).read_text())
    else:
        before = at_commit(options.base, inputs, options.jobs)
    changed = 0
    for name in map(_name, inputs):
        lines = list(differences(before[name], after[name], options.texts)) if name in before else ["not recorded"]
        changed += bool(lines)
        if lines:
            first, *others = name.split(os.pathsep)
            print(f"{Path(first).parent.name}/{Path(first).name}{f' and {len(others)} more' if others else ''}")
            print(*(f"    {line}" for line in lines), sep="\n", flush=True)
    print(f"{changed} of {len(inputs)} traces and jobs differ")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
