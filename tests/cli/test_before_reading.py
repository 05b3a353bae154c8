"""What can be refused is refused before any trace is read, and no trace is ever written over."""

from pathlib import Path

import pytest

from tests.cli.commands import refused
from tests.support.sample_rules import sample_rules  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("sample_rules")

SEVERAL = {
    "diagnose": ("--output", "--parquet", "--accounting"),
    "report": ("--output",),
    "annotate": ("--output",),
    "collectives": ("--output",),
    "compare": ("--output", "--parquet", "--page"),
}
"""Commands of several traces, and their options that name a file to write."""

ALONE = {
    "facts": ("--output",),
    "memory": ("--output", "--parquet"),
    "ops": ("--output",),
    "regions": ("--output",),
    "table": ("--output",),
    "export": ("--speedscope",),
}


@pytest.mark.parametrize(("command", "option"), [(name, one) for name, options in SEVERAL.items() for one in options])
@pytest.mark.parametrize("which", [0, 1])
def test_neither_of_two_traces_is_written_over(command: str, option: str, which: int, tmp_path: Path) -> None:
    """None of the files is a trace, which nobody came to see."""
    ending = {"report": "html", "annotate": "zip"}.get(command, "json")
    traces = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for trace in traces:
        trace.write_text("no trace")
    said = refused(command, *traces, option, traces[which], "--force")
    assert said.startswith(f"{traces[which]}: would overwrite the trace")
    assert [trace.read_text() for trace in traces] == ["no trace", "no trace"]


@pytest.mark.parametrize("option", ["--base", "--new"])
def test_nor_another_capture_of_a_side(option: str, tmp_path: Path) -> None:
    (capture := tmp_path / "a2.json").write_text("no trace")
    given = ("compare", tmp_path / "a.json", tmp_path / "b.json", option, capture)
    assert "a2.json: would overwrite the trace" in refused(*given, "--output", capture, "--force")


def test_nor_the_trace_of_a_baseline(tmp_path: Path) -> None:
    (trace := tmp_path / "a.parquet").write_text("no trace")
    said = refused("baseline", "save", trace, tmp_path / "first.json", trace, "--force")
    assert "would overwrite the trace" in said
    assert trace.read_text() == "no trace"


@pytest.mark.parametrize(("command", "option"), [(name, one) for name, options in ALONE.items() for one in options])
def test_nor_the_only_one(command: str, option: str, tmp_path: Path) -> None:
    (trace := tmp_path / "a.json").write_text("no trace")
    assert "would overwrite the trace" in refused(command, trace, option, trace, "--force")
    assert trace.read_text() == "no trace"


@pytest.mark.parametrize("command", ["facts", "ops", "regions", "table", "collectives"])
def test_parquet_is_not_printed(command: str, tmp_path: Path) -> None:
    said = refused(command, tmp_path / "absent.json", "--format", "parquet")
    assert said == "Parquet is binary and is not printed\n  Name a file with --output FILE."


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--select", "idle-devise"), "Did you mean idle-device?"),
        (("--ignore", "idle-devise"), "Did you mean idle-device?"),
        (("--set", "idle-devise.min_gap_ns=1"), "Did you mean idle-device?"),
        (("--window", "1:2"), "has no unit"),
        (("--fail-on", "low", "--baseline", "no/such.json"), "such.json: cannot be read: No such file"),
        (("--baseline", "no/such.json"), "--baseline is given without --fail-on"),
        (("--output", "no/such/report.txt"), "its folder does not exist"),
        (("--parquet", "no/such/report.txt"), "its folder does not exist"),
        (("--accounting", "no/such/report.txt"), "its folder does not exist"),
        (("--output", "same", "--parquet", "same"), "two outputs go to one file"),
        (("--parquet", "same", "--accounting", "same"), "two outputs go to one file"),
    ],
)
def test_a_diagnosis_looks_at_its_options_first(options: tuple[str, ...], says: str, tmp_path: Path) -> None:
    assert says in refused("diagnose", tmp_path / "absent.json", *options)
