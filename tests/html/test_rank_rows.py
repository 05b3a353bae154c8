"""Where rows of ranks, lines of findings and owners of memory lead, and at which place of the JSON each stands."""

from __future__ import annotations

from dataclasses import replace

from tests.html.pages import Parsed, quotes
from tests.html.test_cards import found
from tests.html.test_cards import page_of as cards_of
from tests.html.test_head import page_of, shown
from tests.html.test_tables import CURVE, MIB
from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.report import DeviceBusy
from traceanalyzer.model.trace import Damage
from traceanalyzer.render.html.head import ranks, verdicts
from traceanalyzer.render.html.plot_data import Owner
from traceanalyzer.render.html.tables import memory


def places(page: Parsed) -> list[tuple[str, str]]:
    return [(path, text.replace("\u00a0", " ")) for path, _, _, text in quotes(page)]


def test_a_row_of_a_rank_has_its_own_numbers_and_leads_to_it() -> None:
    """Of two devices the first that is told, and its largest cause of idle time."""
    busy = (DeviceBusy(1, 25 * MS, 0.25), DeviceBusy(0, 50 * MS, 0.5))
    two = samples.trace(3, step=samples.estimate(), busy=busy)
    one = samples.trace(1, step=samples.estimate(9 * MS))
    page = shown(ranks(page_of(one, two)))
    assert places(page) == [
        ("diagnose#/traces/0/step/traced_ns", "25.0 ms"),
        ("diagnose#/traces/0/step/unprofiled_ns", "9.00 ms"),
        ("diagnose#/traces/0/busy/0/share", "37.0 %"),
        ("diagnose#/traces/1/step/traced_ns", "25.0 ms"),
        ("diagnose#/traces/1/step/unprofiled_ns", "18.0 ms"),
        ("diagnose#/traces/1/busy/0/share", "25.0 %"),
    ]
    links = [(at.text, at.attributes["href"]) for at in page.elements if at.name == "a"]
    assert links == [("rank 1", "#trace-0"), ("rank 3", "#trace-1")]
    heads = [at.text for at in page.elements if at.name == "th" and "thead" in at.parents]
    assert heads == [
        *("rank", "step as recorded", "without the profiler", "busy"),
        *("most of the idle time", "to fix"),
    ]


def test_damaged_trace_is_shown_with_its_verdict() -> None:
    damage = (Damage("truncated", "it ends", 9, 1), Damage("skipped files", "one was skipped"))
    page = shown(verdicts(page_of(samples.trace(meta=samples.meta(damage=damage)))))
    assert [pair for pair in places(page) if "damage" in pair[0]] == [
        ("diagnose#/traces/0/meta/damage/0/message", "it ends"),
        ("diagnose#/traces/0/meta/damage/1/message", "one was skipped"),
    ]
    assert [at.text for at in page.elements if at.name == "dt"][-1] == "Not read"
    assert "Not read" not in shown(verdicts(page_of(samples.trace()))).elements[0].text


def test_finding_line_has_rule_severity_rank_and_message() -> None:
    one = found(rank=1, severity=Severity.LOW)
    page = cards_of([*[found(rank=0)] * 41, replace(one, message="It waits.")], ranks=2)
    lines = [at for at in page.elements if at.name == "tr" and "id" in at.attributes]
    assert [at.attributes["id"] for at in lines] == ["finding-41", "finding-42"]
    assert lines[1].text == "42 scheduler-gaplowrank 1It waits."
    paths = [path for path, _ in places(page) if path.startswith("diagnose#/findings/41/")]
    assert paths == ["diagnose#/findings/41/rule", "diagnose#/findings/41/message"]
    heads = [at.text for at in page.elements if at.name == "th" and "thead" in at.parents]
    assert heads[-4:] == ["finding", "severity", "rank", "what was found"]
    alone = cards_of([found()] * 41)
    (line,) = [at.text for at in alone.elements if at.attributes.get("id") == "finding-41"]
    assert "rank" not in line


def test_memory_peak_and_owners_match_the_json() -> None:
    owners = (*CURVE.owners, Owner("aten::mul", "b.py(2): g", 7, 5))
    more = replace(CURVE, owners=owners, others=1_200, others_bytes=3 * MIB, before_bytes=2 * MIB)
    page = shown(memory(more, 4, ORIGIN))
    at = "memory-4#/devices/1"
    assert places(page) == [
        (f"{at}/device", "CUDA:0"),
        (f"{at}/peak_bytes", "4.00 MiB"),
        (f"{at}/peak_reserved_bytes", "8.00 MiB"),
        *((f"{at}/alive_at_peak/0/{name}", text) for name, text in (("blocks", "2"), ("bytes", "3.00 MiB"))),
        *((f"{at}/alive_at_peak/1/{name}", text) for name, text in (("blocks", "1"), ("bytes", "1.00 MiB"))),
        *((f"{at}/alive_at_peak/2/{name}", text) for name, text in (("blocks", "7"), ("bytes", "5 B"))),
        (f"{at}/before_bytes", "2.00 MiB"),
    ]
    assert [one.text for one in page.of_class("line")] == ["a.py(1): f", "b.py(2): g"]
    assert [(one.text, one.attributes.get("value")) for one in page.of_class("derived")] == [
        ("1,200 other places", None),
        ("3.00 MiB", str(3 * MIB)),
    ]
    rows = [one.text for one in page.elements if one.name == "tr"]
    assert rows[0] == "alive at the peakblocksbytes"
    assert rows[-1] == "allocated before the recording2.00 MiB"


def test_owners_that_differ_late_in_long_names_are_distinct() -> None:
    names = [f"{'k' * 130}{letter}" for letter in "AB"]
    owners = tuple(Owner(name, "x" * 200, 1, MIB) for name in names)
    page = shown(memory(replace(CURVE, owners=owners, reserved_bytes=None), 0, ORIGIN))
    heads = [one.text for one in page.elements if one.name == "th" and "tbody" in one.parents]
    assert [head.partition("x")[0][-2:] for head in heads] == ["kA", "kB"]
    assert [len(one.text) for one in page.of_class("line")] == [160, 160]
