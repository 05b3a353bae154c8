"""`traceanalyzer facts`: text, JSON and rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from traceanalyzer.cli.app import cli

Shared = Callable[[str], Path]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["facts", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_facts_are_told_by_kind(shared: Shared) -> None:
    said = run(str(shared("pairs/addmm_copy.bad")))
    assert "\nhotspot\n" in said
    assert "at the dispatcher only" in " ".join(said.split())
    assert all(len(line) <= 80 or "/" in line for line in said.splitlines())


def test_facts_as_json_have_values_and_events(shared: Shared) -> None:
    document = json.loads(run(str(shared("pairs/launch_bound.bad")), "--format", "json"))
    bound = next(fact for fact in document["facts"] if fact["name"] == "bound")
    assert bound["values"]["bound"] == "cpu"
    assert any(fact["event_ids"] for fact in document["facts"])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_facts_as_rows(shared: Shared, form: str, tmp_path: Path) -> None:
    target = tmp_path / f"facts.{form}"
    run(str(shared("pairs/launch_bound.bad")), "--format", form, "--output", str(target))
    assert target.stat().st_size > 200


def test_a_trace_without_a_device_may_have_none(shared: Shared) -> None:
    assert run(str(shared("public/hta_cpu_only")))
