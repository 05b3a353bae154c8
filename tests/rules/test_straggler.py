"""A rank that does other work than its peers."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.programs import PINNED_TO_HOST, US, Program
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.peer_comparison import ExcessOverPeers, MatchPeers, RemainingShare
from traceanalyzer.replay.step_breakdown import GAP
from traceanalyzer.rule import Calls, Work
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rules.communication.exposed_communication import late_rank_text
from traceanalyzer.rules.communication.straggler import straggler, straggler_cause, straggler_message

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
MS = 1_000 * US
SORT = "aten::sort"


def behind(**how: Any) -> Any:
    plain: dict[str, Any] = {
        "rank": 3,
        "cpu_ns": {"aten::sort": 4.0 * MS, "aten::cat": 2.0 * MS},
        "peers_ns": {"aten::cat": 1.0 * MS},
        "computes_more": False,
        "compute_ns": 20.0 * MS,
        "peers_compute_ns": 14.0 * MS,
        "waits_ns": 0.0,
    }
    return SimpleNamespace(**{**plain, **how})


@pytest.mark.parametrize(
    ("how", "first", "cause"),
    [
        ({"computes_more": True}, LOADER, "more-work"),  # 6 ms more, as on the CPU
        ({"computes_more": True, "compute_ns": 19.9 * MS}, LOADER, "late-input"),
        ({"computes_more": False, "compute_ns": 99.0 * MS}, LOADER, "late-input"),
        ({}, f"{GAP}aten::mm", "host-pause"),
        ({}, "aten::sort", "host-work"),
    ],
)
def test_a_rank_is_late_by_its_device_its_loader_a_pause_or_work(
    how: dict[str, Any], first: str, cause: str
) -> None:
    assert straggler_cause(behind(**how), first) == cause


def test_places_are_told_with_what_the_rank_spends_there() -> None:
    """One without a time; of several three, each with what its peers take, too."""
    assert straggler_message(behind(), ["aten::sort"], 4.0 * MS, 0.0, 0, "") == (
        "rank 3 spends 4.00 ms a step in aten::sort, the other ranks none"
    )
    assert straggler_message(behind(), [f"{GAP}aten::mm"], 4.0 * MS, 1.0 * MS, 0, " inside") == (
        "rank 3 spends 5.00 ms a step in Python before aten::mm inside, the other ranks 1.00 ms"
    )
    two = straggler_message(behind(), ["aten::sort", "aten::cat"], 6.0 * MS, 1.0 * MS, 1 << 20, "")
    assert two == (
        "rank 3 spends 7.00 ms a step at 2 places (4.00 ms in aten::sort, 3.00 ms in aten::cat) on the CPU, "
        "the other ranks 1.00 ms; it copies 1.00 MiB to the host for that"
    )
    names = [f"aten::op{at}" for at in range(4)]
    for count, more in ((3, ""), (4, ", ...")):
        said = straggler_message(
            behind(cpu_ns=dict.fromkeys(names, 1.0 * MS)), names[:count], 4.0 * MS, 0.0, 0, ""
        )
        assert (
            f"at {count} places (1.00 ms in aten::op0, 1.00 ms in aten::op1, 1.00 ms in aten::op2{more})"
            in said
        )


def test_work_of_the_device_and_waits_of_the_others_come_last() -> None:
    said = straggler_message(
        behind(computes_more=True, waits_ns=2.0 * MS), ["aten::sort"], 4.0 * MS, 0.0, 0, ""
    )
    assert said.endswith(
        "; its GPU computes 20.0 ms, the other GPUs 14.0 ms; the other ranks wait 2.00 ms a step for it"
    )


@pytest.mark.parametrize(
    ("kind", "waiting", "peers", "words"),
    [
        ("allreduce", 0, True, ""),
        ("allreduce", 5, True, "; {waiting_of_step} of this is probably waiting for a rank that comes later"),
        ("allreduce", 5, False, "; {waiting_of_step} of this is probably waiting for other ranks"),
        ("barrier", 0, False, " and waits for another rank"),
    ],
)
def test_estimated_waiting_is_told_with_whom_it_is_for(
    kind: str, waiting: int, peers: bool, words: str
) -> None:
    assert late_rank_text(kind, waiting=waiting, peers=peers) == words


def said(
    cpu_ns: Mapping[str, float],
    *,
    compute_ms: float = 1.0,
    copied: int = 0,
    waits_ms: float = 2.0,
    op: str = SORT,
    around: str = "",
    beside: int = 0,
) -> Hits:
    """Of rank 3, in steps of a kernel, a copy to the host and an op on the CPU; its peers sort for 1 ms.

    Args:
        around: an annotation around the op, but not around `beside` more of its kind.
    """
    program = Program()
    for number in range(4):
        program.step(number)
        program.kernel()
        if copied:
            program.copy(PINNED_TO_HOST, copied, 20 * US, ("aten::copy_",))
        if around:
            program.trace.annotation(around, program.now, 400 * US)
        program.trace.op(op, program.now + US, 300 * US)
        program.now += 410 * US
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
        edit=MatchPeers(RemainingShare(np.ones(1)), 1.0),
    )
    (hits,) = straggler(calls, work, behind, None, None)
    return hits


@pytest.mark.parametrize(
    ("cpu_ns", "compute_ms", "cause"),
    [
        ({SORT: 3.0 * MS}, 1.0, "host-work"),
        ({f"before {SORT}": 3.0 * MS}, 1.0, "host-pause"),
        ({"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 3.0 * MS}, 1.0, "late-input"),
        ({SORT: 3.0 * MS}, 4.0, "more-work"),
        ({SORT: 3.0 * MS}, 3.9, "host-work"),  # most of it is the CPU's
        ({SORT: 2.0 * MS, "aten::topk": 1.0 * MS}, 3.9, "host-work"),
    ],
)
def test_the_cause_is_where_most_of_it_lies(
    cpu_ns: Mapping[str, float], compute_ms: float, cause: str
) -> None:
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
    assert (
        "at 3 places (4.00 ms in aten::sort, 3.00 ms in aten::topk, 3.00 ms in aten::unique)"
        in several.message
    )
    more = said(dict.fromkeys((SORT, "aten::topk", "aten::unique", "aten::cumsum"), 3.0 * MS))
    assert "at 4 places" in more.message
    assert "aten::unique, ...)" in more.message


@pytest.mark.parametrize(("copied", "told"), [(4_095, False), (4_096, True), (0, False)])
def test_host_work_on_copies_may_run_on_the_device(copied: int, told: bool) -> None:
    hits = said({SORT: 3.0 * MS}, copied=copied)
    assert ("it copies 4.00 KiB to the host for that" in hits.message) is told
    assert (" on the CPU, the other ranks" in hits.message) is told
    assert hits.advice.startswith("Compute it on the device") is told


@pytest.mark.parametrize("around", ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "other"])
def test_what_runs_in_the_loader_is_for_other_processes(around: str) -> None:
    loads = around.startswith("enumerate")
    hits = said({SORT: 3.0 * MS}, around=around)
    assert ("inside the DataLoader's __next__" in hits.message) is loads
    assert hits.advice.startswith("Load in other processes") is loads


def test_work_partly_in_the_loader_is_not_the_loaders() -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    hits = said({SORT: 3.0 * MS}, around=loader, beside=1)
    assert "DataLoader" not in hits.message
    assert not hits.advice.startswith("Load in other processes")


def test_a_pause_works_on_nothing_that_was_copied() -> None:
    hits = said({f"before {SORT}": 3.0 * MS, SORT: 1.0 * MS}, copied=1 << 20)
    assert "to the host for that" not in hits.message
    assert " on the CPU, the other ranks" not in hits.message
    assert hits.advice.startswith("Share that work among the ranks")
    assert "copied_bytes" not in (hits.evidence or {})
