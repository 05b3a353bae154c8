"""Every command on a broken trace, in a process of its own under limits of time and memory."""

import gc
import os
import random
import re
import resource
import sys
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NamedTuple

import traceanalyzer
from tests.fuzz.cases import SEEDS_OF_ONE, changed, sources
from tests.support.paths import REPOSITORY
from traceanalyzer.cli.app import run

MAX_GROWTH_BYTES = 240 << 20  # beyond the process with all imports: 4 times what clean traces of this size take
MAX_SECONDS = 20  # of the CPU
_MAX_ADDRESSES_BYTES = 6 << 30
_LARGE_BYTES = 20_000  # traces that are broken as a whole are smaller
_WHOLE = 0.15  # share of the cases
_CLEAN = REPOSITORY / "fixtures" / "implicit-sync" / "bad.json.gz"
_NOT_IMPORTED = re.compile(r"\.hook\b|__main__|pytest_plugin|integrations\.server")
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")

COMMANDS: dict[str, tuple[str, ...]] = {
    "diagnose": ("diagnose", "{trace}", "--verbose"),
    "first screen": ("diagnose", "{trace}", "--fail-on", "low"),
    "diagnose two ranks": ("diagnose", "{trace}", "{clean}", "--pedantic"),
    **{
        form: ("diagnose", "{trace}", "--format", form)
        for form in ("json", "jsonl", "github", "junit", "markdown", "sarif")
    },
    "tables": ("diagnose", "{trace}", "--parquet", "{out}.parquet", "--accounting", "{out}.accounting"),
    "report": ("report", "{trace}", "-o", "{out}.html"),
    "annotate": ("annotate", "{trace}", "-o", "{out}.zip"),
    "annotate as JSON": ("annotate", "{trace}", "-o", "{out}.json"),
    "collectives": ("collectives", "{trace}", "{clean}"),
    "compare": ("compare", "{clean}", "{trace}"),
    "compare to clean": ("compare", "{trace}", "{clean}", "--format", "json"),
    "baseline": ("baseline", "save", "{out}.parquet", "{trace}"),
    "export": ("export", "{trace}", "{out}", "--speedscope", "{out}.speedscope"),
    "export results": ("export", "{trace}", "{out}", "--results"),
    "facts": ("facts", "{trace}", "--format", "csv"),
    "memory": ("memory", "{trace}"),
    "ops": ("ops", "{trace}"),
    "ops as CSV": ("ops", "{trace}", "--format", "csv"),
    "table": ("table", "{trace}"),
    "table by shape": ("table", "{trace}", "--group-by-input-shape"),
}


class Ran(NamedTuple):
    """How a command ended: exit code (negative: killed by that signal), what it wrote, and how far memory grew."""

    code: int
    out: bytes
    err: bytes
    growth_bytes: int


def check_command(seed: int, folder: Path) -> None:
    """Run one command on one broken trace.

    Raises:
        AssertionError: it fails, hangs, takes too much memory, or writes control characters.
    """
    rng = random.Random(seed)
    source = random.Random(seed // SEEDS_OF_ONE)  # parsed once for them
    is_whole = source.random() < _WHOLE
    path = source.choice([path for path in sources() if not is_whole or path.stat().st_size < _LARGE_BYTES])
    (trace := folder / "case.json").write_bytes(changed(seed, path, whole=is_whole))
    name = rng.choice(list(COMMANDS))
    places = {"trace": trace, "clean": _CLEAN, "out": folder / "out"}
    ran = run_apart([part.format(**places) for part in COMMANDS[name]], folder)
    told = f"{name}: exit {ran.code}, {ran.growth_bytes >> 20} MB, {ran.err[-2000:].decode('utf-8', 'replace')}"
    assert ran.code in (0, 1, 2), told
    assert b"Traceback" not in ran.err, told
    assert not re.search(rb"rule \S+ failed", ran.err), told
    assert ran.growth_bytes < MAX_GROWTH_BYTES, told
    assert not _CONTROL.search(ran.err), told
    assert name in ("facts", "ops as CSV") or not _CONTROL.search(ran.out), told


def run_apart(arguments: list[str], folder: Path) -> Ran:
    """The command in a fork of this process, which has imported everything, so that its memory is the command's."""
    before = _bytes_of_none()
    if (child := os.fork()) == 0:
        _become(arguments, folder)
    _, status, usage = os.wait4(child, 0)
    out, err = ((folder / name).read_bytes() for name in ("stdout", "stderr"))
    return Ran(os.waitstatus_to_exitcode(status), out, err, (usage.ru_maxrss << 10) - before)


def _bytes_of_none() -> int:
    """The memory of a fork that runs nothing: with the trace that is broken, which this process keeps parsed."""
    _import_all()
    if (child := os.fork()) == 0:
        os._exit(0)
    return os.wait4(child, 0)[2].ru_maxrss << 10


def _become(arguments: list[str], folder: Path) -> None:
    code = 99
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_ADDRESSES_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))  # a fork counts from 0
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(os.open(folder / name, os.O_RDWR | os.O_CREAT), number)
        sys.stdout, sys.stderr = (open(fd, "w", encoding="utf-8", closefd=False) for fd in (1, 2))  # noqa: SIM115
        os.chdir(folder)
        code = run(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@cache
def _import_all() -> None:
    for name in ("pandas", "pyarrow.parquet"):  # which functions import
        import_module(name)
    for module in walk_packages(traceanalyzer.__path__, "traceanalyzer."):
        if not _NOT_IMPORTED.search(module.name):
            import_module(module.name)
    gc.freeze()  # else each fork copies the pages of all objects
