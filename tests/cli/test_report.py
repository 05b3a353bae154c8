"""`report`: pages of a part of a trace and of ranks."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.commands import MS, call, diagnosed, refused, written
from tests.html.pages import Parsed, parsed, quotes, wrong
from tests.support.merged_traces import labelled, rank_trace
from traceanalyzer.cli import report_output
from traceanalyzer.cli.annotate import overlays_of_files
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.step_times import RECORDING, GivenStep
from traceanalyzer.read.load import load

HEADINGS = re.compile(r"^Rank (\d+)$")


def page(tmp_path: Path, *arguments: object) -> Parsed:
    """The page that the command writes."""
    output = tmp_path / "report.html"
    result = call("report", *arguments, "-o", output, "--force")
    assert result.exception is None, result.exception
    return parsed(output.read_bytes())


def of_ranks(html: Parsed) -> list[int]:
    """Ranks that have a section, in the page's order."""
    titles = (HEADINGS.match(one.text) for one in html.elements if one.name == "h2")
    return [int(found[1]) for found in titles if found]


def names_in(html: Parsed, names: list[str]) -> list[str]:
    """These names of files as the page has them, after its heading."""
    text = html.elements[0].text.partition(names[0])[2]
    return sorted(names, key=text.index)


def test_a_window(tmp_path: Path) -> None:
    """Verdict, findings and books are of the part; what has no window says so."""
    trace = written(tmp_path / "trace.json")
    html = page(tmp_path, trace, "--window", "1ms:7.5ms")
    document = json.loads(diagnosed(trace, "--window", "1ms:7.5ms", "--format", "json"))
    assert document["traces"][0]["window"]["length_ns"] == 6.5 * MS
    said = [one for one in quotes(html) if one[0].startswith(("diagnose#", "accounting#"))]
    documents = {"diagnose": document, "accounting": document["accounting"]}
    assert len(said) > 20
    assert wrong(said, documents) == []
    assert "from 1.000 ms to 7.500 ms" in " ".join(html.elements[0].text.split())
    whole = [one.text for one in html.of_class("note") if "whole trace" in one.text]
    assert len(whole) == 2  # ops and facts; no memory was recorded
    assert not any("whole trace" in one.text for one in page(tmp_path, trace).of_class("note"))


def declaring(path: Path, rank: int) -> Path:
    """A trace of one of twelve ranks, all of which have the same pids."""
    return written(path, distributedInfo={"rank": rank, "world_size": 12})


def test_ranks_stand_by_their_numbers(tmp_path: Path) -> None:
    """Rank 10 after rank 9, whatever the files are called and in which order they are given."""
    folder = tmp_path / "job"
    folder.mkdir()
    names = {10: "a", 9: "b", 1: "z", 11: "rank1", 0: "rank9"}
    paths = {rank: declaring(folder / f"{name}.json", rank) for rank, name in names.items()}
    expected = sorted(names)
    for given in ([folder], [paths[10], paths[0], paths[11], paths[9], paths[1]]):
        html = page(tmp_path, *given)
        assert of_ranks(html) == expected
        rows = [one.text for one in html.elements if one.name == "th" and one.text.startswith("rank ")]
        assert rows == [f"rank {rank}" for rank in expected]
        assert names_in(html, (every := [paths[rank].name for rank in expected])) == every


@pytest.mark.parametrize("again", [False, True])
def test_ranks_that_none_declares_are_numbered_as_given(again: bool, tmp_path: Path) -> None:
    """In a folder by the files' names, in which 10 stands after 9 as well."""
    numbers = [0, 1, 2, 9, 10, 11]
    paths = [written(tmp_path / f"part{number}.json") for number in numbers]
    given = paths[::-1] if again else paths
    html = page(tmp_path, *given)
    assert of_ranks(html) == list(range(len(paths)))
    assert names_in(html, [path.name for path in given]) == [path.name for path in given]


@pytest.mark.parametrize("name", ["a.html", "a.HTM", "a.Html", "a", "a.b.html", ".html"])
def test_a_page_has_a_pages_ending_or_none(name: str, tmp_path: Path) -> None:
    """What is refused is the trace."""
    said = refused("report", tmp_path / "absent.json", "-o", tmp_path / name)
    assert said.startswith(f"{tmp_path / 'absent.json'}: no such file\n")


@pytest.mark.parametrize("name", ["a.pdf", "a.html.gz", "a.json", "a.htmlx"])
def test_another_ending_is_refused_before_reading(name: str, tmp_path: Path) -> None:
    said = refused("report", tmp_path / "absent.json", "-o", tmp_path / name)
    assert said.startswith(f"{tmp_path / name}: a page is HTML, not {Path(name).suffix}\n")


def test_findings_and_doubts_go_to_standard_error(tmp_path: Path) -> None:
    """A step of 90 s is longer than the recording; it is the user's own, and the recorder's is not doubted then."""
    trace = written(tmp_path / "t.json", **{RECORDING: {"before_ms": [3.0], "after_ms": [9.0], "unit": "step"}})
    page = tmp_path / "p.html"
    plain = call("report", trace, "-o", page)
    assert plain.stdout == ""
    first, second = plain.stderr.splitlines()[:2]
    assert first.startswith(f"{page}: ")
    assert first.endswith(" findings")
    assert second.startswith(f"warning: {trace}: ")
    count = len(json.loads(call("diagnose", trace, "--format", "json").stdout)["findings"])
    assert first == f"{page}: {count} findings"
    assert "already exists" in refused("report", trace, "-o", page)


def test_processes_and_the_cache_are_as_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def loading(traces: Any, **how: Any) -> Any:
        asked.append({"traces": [path.name for path in traces], **how})
        return load(traces[0])

    monkeypatch.setattr("traceanalyzer.cli.loading.load_all", loading)
    trace = written(tmp_path / "t.json")
    for number, given in enumerate(((), ("--jobs", "3", "--cache"))):
        assert call("report", trace, "-o", tmp_path / f"{number}.html", *given).exit_code == 0
    cases = (None, False), (3, True)
    assert asked == [{"traces": ["t.json"], "jobs": jobs, "cache": cache} for jobs, cache in cases]


@pytest.mark.parametrize(
    ("doubts", "said"),
    [
        ([None, None], ""),
        (["too long", "too short"], "warning: --step-ms 0.25: too long; is it in ms, and of this run?\n"),
        ([None, "too short"], "warning: --step-ms 0.25: too short; is it in ms, and of this run?\n"),
    ],
)
@pytest.mark.parametrize("given", [True, False])
def test_the_first_doubt_of_any_rank_is_said_once(
    given: bool, doubts: list[str | None], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def each(ask: Any, items: dict[int, None], *more: float) -> dict[int, str | None]:
        assert (list(items), more) == ([0, 1], (0.25,))
        return dict(enumerate(doubts))

    ranks: Any = SimpleNamespace(all=(0, 1), each=each)
    report_output.warn_of_step(GivenStep.of(0.25) if given else None, ranks)
    assert capsys.readouterr().err == (said if given else "")


def test_ranks_merged_into_one_file_are_not_drawn(tmp_path: Path) -> None:
    (merged := tmp_path / "merged.json").write_text(json.dumps(labelled([rank_trace(0), rank_trace(1)])))
    with pytest.raises(BadOption, match="a merged file cannot be drawn beside its ranks' findings"):
        overlays_of_files([merged])
    ranks = [written(tmp_path / f"{at}.json", distributedInfo={"rank": at, "world_size": 2}) for at in (0, 1)]
    report, overlays = overlays_of_files(ranks)
    assert len(overlays) == len(report.traces) == 2
    report, overlays = overlays_of_files(ranks[:1], (1_000_000, 7_500_000))
    assert report.traces[0].window.length_ns == 6_500_000
