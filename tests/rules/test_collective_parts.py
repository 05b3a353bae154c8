"""Buckets and exchanges by their sizes."""

from typing import Any

import numpy as np
import pytest

from tests.rules.programs import found
from tests.support.exchanges import STEPS, T, experts
from tests.support.marked_recordings import findings_by_cause, stepped
from traceanalyzer.rules.communication.uneven_experts import mirrored_exchanges


@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        ([(1, 2), (2, 1)], [True]),
        ([(1, 2), (2, 1), (1, 2)], [True, False]),
        ([(1, 2), (2, 1), (1, 2), (2, 1)], [True, False, True]),
        ([(3, 4), (1, 2), (2, 1)], [False, True]),
        ([(1, 2), (2, 3)], [False]),
        ([(1, 2), (3, 1)], [False]),
        ([(0, 0), (0, 0)], [False]),
        ([(0, 2), (2, 0)], [False]),
        ([(2, 0), (0, 2)], [False]),
        ([(1, 2)], []),
    ],
)
def test_what_an_exchange_brought_the_next_one_sends_back(sizes: list[tuple[int, int]], first: list[bool]) -> None:
    sent, received = np.array(sizes).T
    assert mirrored_exchanges(sent, received).tolist() == first


def test_exchanges_of_two_devices_are_no_pairs() -> None:
    """Of one process, in turn: only what goes and comes back on one device is."""
    trace, other = experts([(T, 2 * T), (2 * T, T)]), experts([(T, T), (T, T)])
    for event in other.events:
        args: dict[str, Any] = event["args"]
        if event["name"].startswith("ProfilerStep"):
            continue
        event["ts"] += 20
        args |= {"correlation": args["correlation"] + 1_000} if "correlation" in args else {}
        if "device" in args:
            event["pid"] = args["device"] = 1
        else:
            event["tid"] = 1_001
        trace.events.append(event)
    (one,) = found(trace, "uneven-experts")
    assert (one.device, one.count, one.evidence["times_sent"]) == (0, STEPS, 2.0)


def test_launches_of_which_none_has_work_are_counted() -> None:
    """Four steps of forty."""
    found_ = findings_by_cause(stepped().load())
    assert found_["no-device-records"].count == 160
    assert found_["no-device-records"].message.startswith("160 launches, but no work of a device")
    assert "lost-work" not in found_
