"""A rank that does other work than its peers."""

from collections.abc import Mapping

import numpy as np
import pytest

from tests.rules.programs import PINNED_TO_HOST, US, Program
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.peer_comparison import ExcessOverPeers, MatchPeers
from traceanalyzer.rule import Calls, Work
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rules.communication.straggler import straggler

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
MS = 1_000 * US
SORT = "aten::sort"


def said(
    cpu_ns: Mapping[str, float],
    *,
    compute_ms: float = 1.0,
    copied: int = 0,
    waits_ms: float = 2.0,
    op: str = SORT,
    around: str = "",
    beside: int = 0,
    copied_after: bool = False,
) -> Hits:
    """Of rank 3, in steps of a kernel, a copy to the host and an op on the CPU; its peers sort for 1 ms.

    Args:
        around: an annotation around the op, but not around `beside` more of its kind.
    """
    program = Program()
    for number in range(4):
        program.step(number)
        program.kernel()
        if copied and not copied_after:
            program.copy(PINNED_TO_HOST, copied, 20 * US, ("aten::copy_",))
        if around:
            program.trace.annotation(around, program.now, 400 * US)
        program.trace.op(op, program.now + US, 300 * US)
        program.now += 410 * US
        if copied_after:
            program.copy(PINNED_TO_HOST, copied, 20 * US, ("aten::copy_",))
        for _ in range(beside):
            program.trace.op(op, program.now, 300 * US)
            program.now += 310 * US
    analysis = Analysis(program.trace.load())
    calls, work = analysis.index(Calls), analysis.index(Work)
    behind = ExcessOverPeers(
        rank=3,
        cpu_ns=cpu_ns,
        peers_ns={SORT: 1.0 * MS},
        compute_ns=compute_ms * MS,
        peers_compute_ns=1.0 * MS,
        same_kernels=True,
        pause="",
        pause_left=1.0,
        waits_ns=waits_ms * MS,
        step_ns=10.0 * MS,
        rows=calls.rows[calls.name.one_of(op)],
        edit=MatchPeers(np.ones(1), 1.0),
    )
    (hits,) = straggler(calls, work, behind, None, None)
    return hits


@pytest.mark.parametrize(
    ("cpu_ns", "compute_ms", "cause"),
    [
        ({SORT: 3.0 * MS}, 1.0, "host-work"),
        ({f"before {SORT}": 3.0 * MS}, 1.0, "host-pause"),
        ({LOADER: 3.0 * MS}, 1.0, "late-input"),
        ({SORT: 3.0 * MS}, 4.0, "more-work"),
        ({SORT: 3.0 * MS}, 3.9, "host-work"),  # most of it is the CPU's
        ({SORT: 2.0 * MS, "aten::topk": 1.0 * MS}, 3.9, "host-work"),
    ],
)
def test_the_cause_is_where_most_of_it_lies(cpu_ns: Mapping[str, float], compute_ms: float, cause: str) -> None:
    hits = said(cpu_ns, compute_ms=compute_ms)
    assert hits.cause == cause
    assert ("; its GPU computes" in hits.message) is (compute_ms > 1)


def test_what_the_rank_and_the_others_spend_is_said() -> None:
    one = said({SORT: 3.0 * MS})
    assert one.message == (
        "rank 3 spends 4.00 ms a step in aten::sort, the other ranks 1.00 ms; "
        "the other ranks wait 2.00 ms a step for it"
    )
    none = said({"aten::topk": 3.0 * MS}, waits_ms=0)
    assert none.message == "rank 3 spends 3.00 ms a step in aten::topk, the other ranks none"
    pause = said({f"before {SORT}": 3.0 * MS})
    assert "spends 3.00 ms a step in Python before aten::sort, the other" in pause.message
    several = said(dict.fromkeys((SORT, "aten::topk", "aten::unique"), 3.0 * MS))
    places = "at 3 places (4.00 ms in aten::sort, 3.00 ms in aten::topk, 3.00 ms in aten::unique)"
    assert places in several.message
    more = said(dict.fromkeys((SORT, "aten::topk", "aten::unique", "aten::cumsum"), 3.0 * MS))
    assert "at 4 places" in more.message
    assert "aten::unique, ...)" in more.message


@pytest.mark.parametrize(
    ("copied", "after", "told"), [(4_095, False, False), (4_096, False, True), (4_096, True, False), (0, False, False)]
)
def test_host_work_on_copies_may_run_on_the_device(copied: int, after: bool, told: bool) -> None:
    hits = said({SORT: 3.0 * MS}, copied=copied, copied_after=after)
    assert ("it copies 4.00 KiB to the host for that" in hits.message) is told
    assert (" on the CPU, the other ranks" in hits.message) is told
    assert hits.advice.startswith("Compute it on the device") is told


@pytest.mark.parametrize("around", [LOADER, "other"])
def test_what_runs_in_the_loader_is_for_other_processes(around: str) -> None:
    loads = around.startswith("enumerate")
    hits = said({SORT: 3.0 * MS}, around=around)
    assert ("inside the DataLoader's __next__" in hits.message) is loads
    assert hits.advice.startswith("Load in other processes") is loads


def test_work_partly_in_the_loader_is_not_the_loaders() -> None:
    hits = said({SORT: 3.0 * MS}, around=LOADER, beside=1)
    assert "DataLoader" not in hits.message
    assert not hits.advice.startswith("Load in other processes")


def test_a_pause_works_on_nothing_that_was_copied() -> None:
    hits = said({f"before {SORT}": 3.0 * MS, SORT: 1.0 * MS}, copied=1 << 20)
    assert "to the host for that" not in hits.message
    assert " on the CPU, the other ranks" not in hits.message
    assert hits.advice.startswith("Share that work among the ranks")
    assert "copied_bytes" not in (hits.evidence or {})
