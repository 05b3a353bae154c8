"""How sure each cause of idle time is, whose time it is, and what is said of it beside its own words."""

from __future__ import annotations

from traceanalyzer.idle.cause_table import GROUPS, TABLE
from traceanalyzer.idle.cause_texts import NOT_THE_CODE, SAYS_WHY
from traceanalyzer.model.finding import Confidence


def named(sure: Confidence) -> set[str]:
    """Causes of which some row of the table is so sure."""
    return {row.cause for row in TABLE if row.sure is sure}


def test_unexplained_time_is_least_sure_then_suggested() -> None:
    assert named(Confidence.LOW) == {"unknown", "waiting"}
    assert named(Confidence.MEDIUM) == {
        *("not-recorded", "first-use", "long-call"),  # guessed from what else is recorded
        *("autotuning", "engine", "host-code"),  # nothing is recorded between two ops
    }
    assert named(Confidence.LOW).isdisjoint(named(Confidence.HIGH))
    assert named(Confidence.MEDIUM).isdisjoint(named(Confidence.HIGH))


def test_causes_are_grouped_by_who_could_launch_earlier() -> None:
    late = {cause for cause, group in GROUPS.items() if group == "launched late"}
    assert {"allocator", "long-call", "host-collective", "host-work", "data-loading", "dispatching"} <= late
    assert {"engine", "python", "host-code"} <= late
    device = {cause for cause, group in GROUPS.items() if group == "the device"}
    assert device == {"in-graph", "launch-latency", "waiting"}
    waited = {cause for cause, group in GROUPS.items() if group == "the CPU waited for the device"}
    assert waited == {"synchronisation", "blocking-upload"}
    once = {cause for cause, group in GROUPS.items() if group == "getting started"}
    assert once == {"graph-capture", "compilation", "module-loading", "first-use", "autotuning"}


def test_hidden_causes_explain_why_they_are_hidden() -> None:
    assert {"not-recorded", "unlinked", "tail", "waiting", "unknown"} <= set(SAYS_WHY)
    assert {"graph-capture", "profiler-overhead", "in-graph"} <= set(SAYS_WHY)
    assert {"python", "host-code", "dispatching", "synchronisation"}.isdisjoint(SAYS_WHY)


def test_recording_and_device_causes_need_no_code_change() -> None:
    recording = {cause for cause, group in GROUPS.items() if group == "the recording"}
    assert recording <= set(NOT_THE_CODE)
    assert {"graph-capture", "launch-latency", "in-graph", "start"} <= set(NOT_THE_CODE)
    assert {"host-code", "python", "dispatching", "waiting", "unknown"}.isdisjoint(NOT_THE_CODE)
