"""What a change makes the diagnosis say otherwise: `python -m benchmarks.changes BASE TRACES... [--every 1]`.

Each trace is diagnosed by the code of the commit BASE and by the code here. Printed are the findings that only one of
them has, and those of which severity, saving or one number differs. Exit code 1 where any does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve()
Said = Mapping[str, Mapping[str, Any]]


def findings_of(path: Path) -> dict[str, dict[str, Any]]:
    """What is said of a trace: rule, cause and place -> severity and numbers; of a file that is refused, why."""
    from traceanalyzer import diagnose
    from traceanalyzer.model.errors import TraceAnalyzerError

    try:
        report = diagnose(path)
    except TraceAnalyzerError as problem:
        return {"refused": {"why": type(problem).__name__}}
    said: dict[str, dict[str, Any]] = {}
    for head in report.traces:
        said[f"step of rank {head.rank}"] = {"ns": head.step and head.step.unprofiled_ns}
    for one in report.findings:
        key = " ".join(str(part) for part in (one.rule, one.cause, one.by, one.rank, one.device))
        saving = one.saving and [one.saving.step_ns, one.saving.low_ns, one.saving.high_ns]
        said[key] = {
            "severity": str(one.severity),
            "saving": saving,
            "cost": one.cost_ns,
            "count": one.count,
            "evidence": json.loads(json.dumps(dict(one.evidence), default=str)),
        }
    return said


def differences(before: Said, after: Said) -> Iterable[str]:
    """A line for each thing of one trace that is said otherwise."""
    for key in sorted({*before, *after}):
        if key not in after or key not in before:
            one = before.get(key) or after[key]
            yield f"{'-' if key in before else '+'} {key} ({one.get('severity', '')})"
            continue
        for name in sorted({*before[key], *after[key]}):
            old, new = before[key].get(name), after[key].get(name)
            if old != new:
                yield f"  {key}: {name} {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else f"{text[:57]}..."


def traces_of(paths: Sequence[Path], every: int) -> list[Path]:
    """The files, and those in the folders, each so manieth."""
    found = [
        file for path in paths for file in (sorted(path.rglob("*.json.gz")) if path.is_dir() else [path])
    ]
    return [file.resolve() for file in found if ".table." not in file.name][::every]


def by_base(base: str, traces: Sequence[Path]) -> dict[str, Said]:
    """What the code of another commit says, in a process that imports that code."""
    root = HERE.parent.parent
    with TemporaryDirectory() as folder:
        code = Path(folder) / "code"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", code, base], cwd=root, check=True)
        try:
            subprocess.run(
                [sys.executable, HERE, "--write", Path(folder) / "said.json", *traces],
                cwd=code,
                env={**os.environ, "PYTHONPATH": str(code)},
                check=True,
            )
            said: dict[str, Said] = json.loads((Path(folder) / "said.json").read_text(encoding="utf-8"))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", code], cwd=root, check=True)
    return said


def main() -> int:
    """The command line."""
    if sys.argv[1:2] == ["--write"]:
        said = {path: findings_of(Path(path)) for path in sys.argv[3:]}
        Path(sys.argv[2]).write_text(json.dumps(said), encoding="utf-8")
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="a commit")
    parser.add_argument("traces", type=Path, nargs="+", help="traces, and folders of them")
    parser.add_argument("--every", type=int, default=1, help="only each so manieth trace")
    options = parser.parse_args()
    traces = traces_of(options.traces, options.every)
    before, changed = by_base(options.base, traces), 0
    for path in traces:
        after = json.loads(json.dumps(findings_of(path)))
        lines = list(differences(before[str(path)], after))
        changed += bool(lines)
        for number, line in enumerate(lines):
            print(f"{path.parent.name}/{path.name}\n    {line}" if number == 0 else f"    {line}", flush=True)
    print(f"{changed} of {len(traces)} traces are said otherwise")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
