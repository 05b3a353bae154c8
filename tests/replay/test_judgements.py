"""Verdicts of docs/findings.md stand beside what is found in programs that nobody broke."""

import pytest

from benchmarks import diagnoses

PAGE = """
## real/

| trace | finding | worth | verdict | evidence |
|---|---|---|---|---|
| gcn.eager | implicit-sync: boolean-mask, aten::index | saves 18 % | true | two masks |
| | implicit-sync: read-back, aten::item | saves 5 % | not first | loss.item() |
| vit.eager | exposed-copy: pageable | saves 28 % | true | 18 MiB a step |

## ranks/

| gcn.eager | implicit-sync: read-back, aten::item | saves 5 % | wrong | another folder |
"""


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ("| real/gcn.eager | `implicit-sync`: boolean-mask, aten::index | high | saves 17.7% |", "true"),
        ("| real/gcn.eager | `implicit-sync`: read-back, aten::item | medium | saves 5.0% |", "not first"),
        ("| real/vit.eager | `exposed-copy`: pageable, host to device | high | saves 27.7% |", "true"),
        ("| real/vit.eager | `implicit-sync`: read-back, aten::item | high | saves 9.0% |", ""),
        ("| noise/vit.eager | `exposed-copy`: pageable, host to device | high | saves 27.7% |", ""),
    ],
)
def test_the_verdict_is_that_on_the_same_trace_and_finding(row: str, verdict: str) -> None:
    assert diagnoses.judgement(row, PAGE) == verdict


def test_every_finding_in_real_programs_is_judged() -> None:
    rows = [line for line in diagnoses_table() if line.startswith(("| real/", "| public/"))]
    assert rows
    assert all(
        line.rstrip("| ").rpartition("|")[2].strip() in {"true", "not first", "wrong"} for line in rows
    )


def diagnoses_table() -> list[str]:
    """Lines of docs/accuracy.md."""
    return (diagnoses.JUDGEMENTS.parent / "accuracy.md").read_text(encoding="utf-8").splitlines()
