"""What is said of a rank that the others wait for: its cause and its places; and of waiting that is estimated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.replay.step_breakdown import _GAP
from traceanalyzer.rules.communication.exposed_communication import late_rank_text
from traceanalyzer.rules.communication.straggler import straggler_cause, straggler_message

MS = 1_000_000
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


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
        ({}, f"{_GAP}aten::mm", "host-pause"),
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
    assert straggler_message(behind(), [f"{_GAP}aten::mm"], 4.0 * MS, 1.0 * MS, 0, " inside") == (
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
