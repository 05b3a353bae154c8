"""`tools/compare_findings.py`: what counts as a difference between two versions, and which traces it reads."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.paths import REPOSITORY
from tools.compare_findings import answers, differences, inputs_in

EXPOSED = str(REPOSITORY / "fixtures/exposed-copy/bad.json.gz")


def test_each_finding_and_verdict_is_compared() -> None:
    answer = answers([EXPOSED])[EXPOSED]
    assert answer["findings"][0] == "exposed-copy: pageable by host to device, rank None, high, 59 %"
    assert answer["verdict"][0].startswith("rank None: Step: 3.39 ms recorded")
    assert not list(differences(answer, answer, texts=True))

    changed = {**answer, "findings": ["exposed-copy: pageable by host to device, rank None, low, 59 %"]}
    lines = list(differences({**answer, "findings": answer["findings"][:1]}, changed, texts=False))
    assert [line[:2] for line in lines] == ["- ", "+ "]
    assert "high" in lines[0]
    assert "low" in lines[1]


def test_another_order_of_findings_is_a_difference() -> None:
    before = {"findings": ["a", "b"], "verdict": [], "texts": ["same"]}
    after = {"findings": ["b", "a"], "verdict": [], "texts": ["changed"]}
    assert list(differences(before, after, texts=False)) == ["findings: other order"]
    assert list(differences(before, after, texts=True)) == ["findings: other order", "- same", "+ changed"]


def test_ranks_of_a_job_are_one_input(tmp_path: Path) -> None:
    for name in ("ddp.rank0.json.gz", "ddp.rank1.json.gz", "a.json.gz", "a.table.json.gz", "note.txt"):
        (tmp_path / name).touch()
    names = [[Path(file).name for file in one.split(os.pathsep)] for one in inputs_in([tmp_path], 1)]
    assert names == [["a.json.gz"], ["ddp.rank0.json.gz", "ddp.rank1.json.gz"]]


def test_refused_traces_are_compared_by_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.json.gz"
    path.write_bytes(b"")
    assert answers([str(path)])[str(path)]["findings"][0].startswith("refused: ")
