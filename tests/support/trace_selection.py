"""Which of the shared traces a test looks at that holds of every trace: one of each kind, chosen by rule.

    TRACEANALYZER_ALL=1 pytest tests/read      # all of them, and each rewriting of a trace by itself

What is true of one trace alone (its fault, its step without the profiler, torch's table) is always tested.
"""

import os
import re
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

ALL = os.environ.get("TRACEANALYZER_ALL", "0") not in ("", "0")
"""Whether nothing is left out."""

_AGAIN = re.compile(
    r"noise/.*\.a[234]$"  # the same program once more
    r"|(ddp|ranks)/.*\.rank1$"  # the other rank
    r"|(pairs4?|ranks)/(?!clean_|launch_bound).*\.fixed"  # without the fault; of launch_bound a CUDA graph
)
# Of slowdown/ each program with one set of the profiler's switches, and each set once.
_SWITCHES = re.compile(
    r"slowdown/(cnn\.all|decode\.memory|mlp_small\.plain|pointwise\.shapes|python_heavy\.stack|views\.modules)$"
)
_WRITERS = re.compile(
    r"public/(?!.*nw4)"  # all other exporters and devices
    r"|slowdown/"  # each set of switches
    r"|seeds/64_bf16_(cold|warm_compile)|pairs/(launch_bound|recompile)|real/gpt2_train\.compile"  # cold, compiled
    r"|real/cnn_lab|ddp/exposed|ranks/moe_a2a"  # all switches in a program of size, several ranks
)

_MANY = 100  # traces, of which those that another wrote in the same way are one in three
_LARGE = re.compile(
    r"public/(kineto_bare_array_old|kineto_v100_resnet50_nw0|hta_v100_ns)$"
    r"|slowdown/(cnn\.all|views\.modules|decode\.memory)$"
)


def takes_long(name: str, traces: int) -> bool:
    """Whether a sweep over so many traces leaves this one to .ci/run: others are written in the same way."""
    many = traces > _MANY and not _WRITERS.match(name) and zlib.crc32(name.encode()) % 3 > 0
    return not ALL and (many or bool(_LARGE.match(name)))


def some_of(every: Sequence[Any], number: int = 3) -> list[Any]:
    """One of so many; of the others, of which the same holds, one is slow, and the rest is left out."""
    slow = pytest.mark.slow
    return [
        pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=() if at % number == 0 else slow)
        for at, one in enumerate(every)
        if ALL or at % number < 2
    ]


def one_of_each_kind(name: str) -> bool:
    """Each program and each exporter once."""
    once = _SWITCHES.match(name) if name.startswith("slowdown/") else not _AGAIN.match(name)
    return ALL or bool(once)


def one_of_each_writer(name: str) -> bool:
    """Each way to write a trace once: exporter, device, switches, mode. For what depends on the file alone."""
    return ALL or (one_of_each_kind(name) and bool(_WRITERS.match(name)))
