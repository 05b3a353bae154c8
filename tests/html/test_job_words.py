"""What the page of a job says beside its drawings: its verdict with places in the JSON, heads, captions, labels."""

from __future__ import annotations

from dataclasses import replace

from tests.html.pages import Parsed, parsed, quotes
from tests.html.test_job_drawings import ONE, TWO, drawn
from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.report import JobReport, Verdict
from traceanalyzer.render.html.jobs import job_verdict


def verdict(job: JobReport) -> Parsed:
    return parsed(str(job_verdict(job)).encode())


def test_job_verdict_lines_match_their_json_places() -> None:
    peers = {"1": samples.estimate(), "2, 3": samples.estimate(9 * MS)}
    page = verdict(JobReport((ONE,), summary=Verdict("12 ms", "the GPU", "faster"), as_peers=peers))
    assert [(path, text) for path, _, _, text in quotes(page)] == [
        ("diagnose#/job/summary/step", "12\u00a0ms"),
        ("diagnose#/job/summary/limit", "the GPU"),
        ("diagnose#/job/summary/fix", "faster"),
        ("diagnose#/job/as_peers/1/unprofiled_ns", "18.0 ms"),
        ("diagnose#/job/as_peers/2, 3/unprofiled_ns", "9.00 ms"),
    ]
    assert [one.text for one in page.elements if one.name == "dt"] == [
        *("Step", "Limit", "Fix"),
        *("What if", "What if"),
    ]
    assert [one.text for one in page.of_class("rank")] == ["1", "2, 3"]


def test_a_verdict_has_what_is_known_alone() -> None:
    page = verdict(JobReport((ONE,), missing=(7,)))
    assert [one.text for one in page.elements if one.name == "div"] == ["Missingrank 7"]
    page = verdict(JobReport((ONE,), summary=Verdict("", "the CPU", "")))
    assert [one.text for one in page.elements if one.name == "div"] == ["Limitthe CPU"]
    shown = JobReport((ONE,), step=samples.estimate(), summary=Verdict("12 ms"))
    assert job_verdict(shown) is None


def test_the_heat_map_has_a_column_for_each_step_of_any_rank() -> None:
    page = drawn([replace(TWO, step=(8, 9)), ONE])
    heads = [one.text for one in page.elements if one.name == "th" and "thead" in one.parents]
    assert heads == ["rank", "7", "8", "9"]
    names = [one.text for one in page.elements if one.name == "th" and "tbody" in one.parents]
    assert names == ["rank 1", "rank 0"] * 2


def test_step_rows_are_named_and_clocks_shown_if_any() -> None:
    page = drawn([replace(ONE, clock=None), replace(TWO, clock=None, start_ns=(0, 10 * MS))])
    labels = [one.attributes["aria-label"] for one in page.of_class("rank-steps")]
    assert labels == ["Steps of rank 0", "Steps of rank 1"]
    (caption,) = [one.text for one in page.elements if one.name == "caption"]
    assert caption.endswith("the verdict is about the run without the profiler.")
    titles = [one.text for one in page.elements if one.name == "title"]
    assert titles[0] == titles[1]  # the step's bar and its wait


def test_of_ranks_that_wait_alike_the_first_are_drawn() -> None:
    page = drawn([replace(ONE, rank=rank, waiting_ns=5) for rank in reversed(range(49))])
    labels = [one.attributes["aria-label"] for one in page.of_class("rank-steps")]
    assert labels == [f"Steps of rank {rank}" for rank in reversed(range(48))]
    assert [one.text for one in page.of_class("note")] == ["1 rank with less waiting left out."]
