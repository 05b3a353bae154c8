"""Create a new rule with its test and fixture folder, or run every check for one rule.

python tools/new_rule.py my-rule [--group host]     # writes the rule, its title, its test and fixtures/my-rule/
python tools/new_rule.py --check my-rule            # the same as: make rule RULE=my-rule
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TITLES = REPOSITORY / "traceanalyzer" / "rule" / "titles.toml"
sys.path.append(str(REPOSITORY))  # run as a file, Python looks for modules beside it alone

from traceanalyzer.version import __version__  # noqa: E402

RULE = '''"""TODO: what this rule is about, in one line."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, rule


class Limits:
    min_idle_ns: int = 5_000
    """TODO: shorter idle time is ignored, because ... (measured on ...)"""


@rule(since="{since}", claims=Claims.EVENT, limits=Limits)
def {name}(calls: Calls, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """TODO: the failing state as a sentence, which is the title of the page.

    What it looks for: TODO.
    Why it costs: TODO.
    Bad: TODO. Good: TODO.
    How sure: TODO.
    When it is wrong: TODO.
    Source: TODO.
    """
    pattern = calls[calls.is_op & calls.name.one_of("todo::op")]
    lost = LostTime.launched_within(idle, pattern.start_ns, pattern.end_ns)
    costly = np.flatnonzero(lost.sums(len(pattern)) >= limits.min_idle_ns)
    found = pattern[costly]
    yield Hits(
        occurrences=found,
        lost=LostTime.launched_within(idle, found.start_ns, found.end_ns),
        fix=Drop(found.rows),
        message="todo::op runs {{times_a_step}}: the GPU is idle for {{per_step}} of each step",
        advice="TODO: one remedy, in the imperative.",
        evidence={{"lines": found.line.sums(found.dur_ns)}},
    )
'''

TEST = '''"""TODO: the failing state that {slug} finds."""

from __future__ import annotations

from tests.rules.programs import US, Program, found


def program(op: str) -> Program:
    """Four steps: a kernel, 500 us of this op on the CPU, and a kernel."""
    program = Program()
    for number in range(4):
        program.step(number)
        program.kernel()
        program.trace.op(op, program.now, 500 * US)
        program.now += 490 * US
        program.kernel()
    return program


def test_{name}_is_found() -> None:
    (finding,) = found(program("todo::op").trace, "{slug}")
    assert (finding.count, finding.steps) == (4, 4)
    assert finding.message.startswith("todo::op runs once a step")


def test_{name}_leaves_other_ops_alone() -> None:
    assert found(program("aten::mm").trace, "{slug}") == []
'''

TITLE = """
[{slug}]
any = "TODO: the problem with its number, as in todo::op runs {{times_a_step}}"
"""

UNRECORDED = "No pair is recorded yet. tests/rules/test_{name}.py builds the pattern and its fixed form.\n"


def create(slug: str, group: str) -> list[Path]:
    """Writes the files of a new rule, none of which may exist, and its title; returns the paths of all.

    Raises:
        SystemExit: the slug is not kebab-case, the group is unknown, or a file exists.
    """
    name = slug.replace("-", "_")
    folder = REPOSITORY / "traceanalyzer" / "rules" / group
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", slug):
        sys.exit(f"{slug!r} is not kebab-case: name the failing state, such as launch-bound")
    if not (folder / "__init__.py").exists():
        groups = sorted(path.parent.name for path in folder.parent.glob("*/__init__.py"))
        sys.exit(f"no group {group!r}: choose one of {', '.join(groups)} by --group")
    major, minor, *_ = __version__.split(".")
    since = f"{major}.{int(minor) + 1}"  # the next release
    files = {
        folder / f"{name}.py": RULE.format(name=name, since=since),
        REPOSITORY / "tests" / "rules" / f"test_{name}.py": TEST.format(name=name, slug=slug),
        REPOSITORY / "fixtures" / slug / "unrecorded.txt": UNRECORDED.format(name=name),
    }
    if existing := [str(path.relative_to(REPOSITORY)) for path in files if path.exists()]:
        sys.exit(f"exists already: {', '.join(existing)}")
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with TITLES.open("a", encoding="utf-8") as titles:
        titles.write(TITLE.format(slug=slug))
    return [*files, TITLES]


def files_of(slug: str) -> list[Path]:
    """The Python files of one rule and of its tests.

    Raises:
        SystemExit: there are none.
    """
    name = slug.replace("-", "_")
    rules, tests = REPOSITORY / "traceanalyzer" / "rules", REPOSITORY / "tests" / "rules"
    files = [*rules.glob(f"*/{name}.py"), *rules.glob(f"*/{name}/*.py")]
    if not files:
        sys.exit(f"no rule {slug!r} in traceanalyzer/rules; python tools/new_rule.py {slug} creates it")
    named = [path for path in tests.glob("test_*.py") if f'"{slug}"' in path.read_text(encoding="utf-8")]
    return files + named


def check(slug: str) -> int:
    """Runs all checks for one rule and returns the number of those that fail."""
    files = [str(path.relative_to(REPOSITORY)) for path in files_of(slug)]
    tests = [file for file in files if file.startswith("tests")]
    shared = ["tests/rules/test_fixtures.py", "tests/rules/test_findings.py"]
    python = [sys.executable, "-m"]
    commands = [
        [*python, "ruff", "check", *files],
        [*python, "ruff", "format", "--check", *files],
        [*python, "mypy"],
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        [*python, "pytest", "-q", "-n", "0", "-m", "", *tests],
        [*python, "pytest", "-q", "-n", "0", "tests/rule/test_titles.py"],
        [*python, "pytest", "-q", "-n", "0", "-k", f"{slug} or {slug.replace('-', '_')}", *shared],
        [sys.executable, "tools/docs.py", "--check"],
    ]
    failed = []
    for command in commands:
        print("$", " ".join(command).replace(sys.executable, "python"), flush=True)
        if subprocess.run(command, cwd=REPOSITORY, check=False).returncode not in (0, 5 if "-k" in command else 0):
            failed.append(command)
    files.append(str(TITLES.relative_to(REPOSITORY)))
    todo = [file for file in files if "TODO" in (REPOSITORY / file).read_text(encoding="utf-8")]
    if todo:
        print(f"TODO is left in {', '.join(todo)}")
    print(f"{slug}: {len(failed) or 'no'} checks failed" + f", {len(todo)} files unfinished" * bool(todo))
    return len(failed) + len(todo)


def main() -> int:
    """0 if files are written or all checks pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("slug", help="name of the rule, in kebab-case")
    parser.add_argument("--group", default="host", help="folder of traceanalyzer/rules (host)")
    parser.add_argument("--check", action="store_true", help="run all checks for an existing rule")
    options = parser.parse_args()
    if options.check:
        return min(check(options.slug), 1)
    for path in create(options.slug, options.group):
        print(f"wrote {path.relative_to(REPOSITORY)}")
    print(f"next: replace each TODO, then make rule RULE={options.slug}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
