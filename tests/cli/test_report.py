"""`report`: the page of a part of a trace, and of ranks in whatever order they come."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.commands import MS, call, diagnosed, refused, written
from tests.html.pages import Parsed, parsed, quotes, wrong
from traceanalyzer.model.errors import TraceAnalyzerError

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


def test_a_window(tmp_path: Path) -> None:
    """Verdict, findings, books and the flame graph are of the part; what has no window says so."""
    trace = written(tmp_path / "trace.json")
    html = page(tmp_path, trace, "--window", "1ms:7.5ms")
    document = json.loads(diagnosed(trace, "--window", "1ms:7.5ms", "--format", "json"))
    assert document["traces"][0]["window"]["length_ns"] == 6.5 * MS
    said = [one for one in quotes(html) if one[0].startswith(("diagnose#", "accounting#"))]
    documents = {"diagnose": document, "accounting": document["accounting"]}
    assert len(said) > 20
    assert wrong(said, documents) == []
    assert "from 1.000 ms to 7.500 ms" in " ".join(html.elements[0].text.split())
    flame = next(one.text for one in html.elements if one.attributes.get("id") == "data")
    root = json.loads(flame)["flames"][0]["root"]
    assert root[2:4] == [
        500_000,
        2,
    ]  # the end of the first kernel and the begin of the second, 20 us after their calls
    whole = [one.text for one in html.of_class("note") if "whole trace" in one.text]
    assert len(whole) == 2  # ops and facts; no memory was recorded
    assert not any("whole trace" in one.text for one in page(tmp_path, trace).of_class("note"))


def test_a_window_that_is_none(tmp_path: Path) -> None:
    trace = written(tmp_path / "trace.json")
    assert "has no unit" in refused("report", trace, "-o", tmp_path / "a.html", "--window", "1:2")
    outside = call("report", trace, "-o", tmp_path / "a.html", "--window", "90ms:95ms")
    assert isinstance(outside.exception, TraceAnalyzerError)
    assert "outside the trace" in str(outside.exception)
    assert not (tmp_path / "a.html").exists()


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
        sources = [
            text for path, _, _, text in quotes(html) if re.search(r"^diagnose#/traces/\d+/source$", path)
        ]
        assert sources == [str(paths[rank]) for rank in expected]


@pytest.mark.parametrize("again", [False, True])
def test_ranks_that_none_declares_are_numbered_as_given(again: bool, tmp_path: Path) -> None:
    """In a folder by the files' names, in which 10 stands after 9 as well."""
    numbers = [0, 1, 2, 9, 10, 11]
    paths = [written(tmp_path / f"part{number}.json") for number in numbers]
    given = paths[::-1] if again else paths
    html = page(tmp_path, *given)
    assert of_ranks(html) == list(range(len(paths)))
    sources = [text for path, _, _, text in quotes(html) if re.search(r"^diagnose#/traces/\d+/source$", path)]
    assert sources == [str(path) for path in given]


def test_a_folder_whose_files_are_numbered_alone(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    paths = [written(folder / f"worker_{number}.json") for number in (1, 2, 9, 10, 11)]
    html = page(tmp_path, folder)
    sources = [text for path, _, _, text in quotes(html) if re.search(r"^diagnose#/traces/\d+/source$", path)]
    assert sources == list(map(str, paths))
