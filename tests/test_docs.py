"""The documents are true: generated parts are current, what they show runs, what they name exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import notebook_page
from tests.support.cached_reports import analysed, reported
from tests.support.fixtures import FIXTURES
from tests.support.paths import REPOSITORY
from tests.support.xdist_groups import with_torch
from traceanalyzer.cli.app import NAMES, cli, command_of
from traceanalyzer.idle.causes import CAUSES
from traceanalyzer.read.load import load_file
from traceanalyzer.report.facts import facts_of
from traceanalyzer.rule.registry import all_rules
from traceanalyzer.timeline.device_work import KINDS

README, RULES, USE = (
    (REPOSITORY / name).read_text(encoding="utf-8") for name in ("README.md", "docs/rules.md", "docs/commands.md")
)
MOST_LINES = 120  # of README.md
DOCUMENTS = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *(f"docs/{page.name}" for page in sorted((REPOSITORY / "docs").glob("*.md"))),
]


def generator() -> ModuleType:
    """tools/docs.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("tools_docs", REPOSITORY / "tools" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_are_current() -> None:
    module = generator()
    for name, parts in module.PAGES.items():
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        assert module.generated(text, parts) == text, "run: python tools/docs.py --write"


def test_generated_pages_are_current() -> None:
    for name, make in generator().WHOLE_PAGES.items():
        page = (REPOSITORY / name).read_text(encoding="utf-8")
        assert make() == page, "run: python tools/docs.py --write"


def by_trace() -> dict[str, list[dict[str, str]]]:
    """Rows of the cheat sheet by the fixture that they name."""
    rows: dict[str, list[dict[str, str]]] = {}
    for row in generator().cheat_rows():
        if "trace" in row and "command" not in row:
            rows.setdefault(row["trace"], []).append(row)
    return rows


def test_rules_and_commands_of_the_cheat_sheet_exist() -> None:
    rules = {rule.slug: ("", *rule.causes) for rule in all_rules()}
    for row in generator().cheat_rows():
        if "command" in row:
            name, *options = shlex.split(row["command"])
            command_of(name).make_context(name, options)
        elif "rule" in row:
            assert row.get("cause", "") in rules[row["rule"]]


@pytest.mark.parametrize(
    "row", [row for row in generator().cheat_rows() if "command" in row], ids=lambda row: row["command"][:30]
)
def test_commands_of_the_cheat_sheet_answer(row: dict[str, str]) -> None:
    fixtures = {"TRACE": row["trace"], "BASE": row["trace"], "NEW": row.get("new", "")}
    files = {word: str(FIXTURES / f"{name}.json.gz") for word, name in fixtures.items()}
    answer = CliRunner().invoke(cli, [files.get(word, word) for word in shlex.split(row["command"])])
    assert re.search(row["prints"], answer.stdout)


@pytest.mark.parametrize(("trace", "rows"), sorted(by_trace().items()))
def test_the_cheat_sheet_is_true(trace: str, rows: list[dict[str, str]]) -> None:
    path = REPOSITORY / "fixtures" / f"{trace}.json.gz"
    found = reported(path).findings
    said = {(one.rule, cause) for one in found for cause in (None, one.cause)}
    facts = {fact.name for fact in facts_of(analysed(path))}
    for row in rows:
        if "fact" in row:
            assert row["fact"] in facts
        else:
            assert (row["rule"], row.get("cause")) in said


def test_check_and_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = generator()
    (tmp_path / "docs").mkdir()
    for name, parts in module.PAGES.items():
        marks = (f"<!-- {part}: generated -->\nold\n<!-- {part}: end -->\n" for part in parts)
        (tmp_path / name).write_text("".join(marks))
    (tmp_path / "tools").mkdir()
    shutil.copy(REPOSITORY / "tools" / "cheatsheet.toml", tmp_path / "tools")
    monkeypatch.setattr(module, "REPOSITORY", tmp_path)
    monkeypatch.setattr(module, "PICTURED", REPOSITORY / module.PICTURED)
    for choice, expected in (("--check", 1), ("--write", 0), ("--check", 0)):
        monkeypatch.setattr("sys.argv", ["docs.py", choice])
        assert module.main() == expected
    assert "README.md, docs/rules.md, docs/accounting.md" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no part marked 'picture'"):
        module.generated("no marks", module.PAGES["README.md"])


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_files_are_as_short_as_contributing_says() -> None:
    (most,) = re.findall(r"Files have up to (\d+) lines", (REPOSITORY / "CONTRIBUTING.md").read_text())
    folders = ("traceanalyzer", "capture", "benchmarks", "tests", "tools")
    files = [file for folder in folders for file in (REPOSITORY / folder).rglob("*.py")]
    assert len(files) > 500
    assert [file.name for file in files if len(file.read_text().splitlines()) > int(most)] == []


def test_every_rule_is_in_the_table_with_its_page() -> None:
    for rule in all_rules():
        assert f"| `{rule.slug}` |" in RULES
        assert len(rule.page.splitlines()) > 1, f"{rule.slug} has a title, but no page"


def test_the_picture_says_what_is_wrong() -> None:
    picture = README.partition("<!-- picture: generated -->")[2].partition("<!-- picture: end -->")[0]
    assert "\n1  A pageable copy of 32.0 MiB" in picture
    assert max(map(len, picture.splitlines())) <= 80


def commands(text: str) -> list[list[str]]:
    """Every command line of traceanalyzer in a document's indented blocks, without comments."""
    lines = re.findall(r"^(?:    |\$ )(traceanalyzer .*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_line_of_a_block_has_one_command(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    for line in re.findall(r"^    (?! )(.*)$", text, re.MULTILINE):
        assert " traceanalyzer " not in line.partition(" # ")[2], line


@pytest.mark.parametrize("document", ["README.md", "docs/output.md", "docs/commands.md"])
def test_shown_commands_have_only_options_that_exist(document: str) -> None:
    shown = commands((REPOSITORY / document).read_text(encoding="utf-8"))
    assert shown or document == "docs/output.md"
    for arguments in shown:
        named = arguments if arguments[0] in NAMES else ["diagnose", *arguments]
        command_of(named[0]).make_context(named[0], named[1:])


def test_views_of_other_profilers_are_commands_that_exist() -> None:
    page = (REPOSITORY / "docs" / "coming-from.md").read_text(encoding="utf-8")
    shown = re.findall(r"`traceanalyzer ([^`]+)`", page)
    assert len(shown) > 30
    for name, *arguments in map(shlex.split, shown):
        command_of(name).make_context(name, arguments)


def test_examples_in_the_help_have_only_options_that_exist() -> None:
    for name in ("diagnose", "rules", "explain", "export"):
        shown = CliRunner().invoke(cli, [name, "--help"]).stdout
        lines = re.findall(r"^ +(?:.*\| )?traceanalyzer (\w+ .*|rules)$", shown, re.MULTILINE)
        assert lines, name
        for line in lines:
            arguments = shlex.split(line)
            command = cli.get_command(cli.make_context("traceanalyzer", ["rules"]), arguments[0])
            assert command is not None
            command.make_context(arguments[0], arguments[1:])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (REPOSITORY / document).parent.joinpath(target).exists(), target


def test_makefile_has_the_targets_that_documents_name() -> None:
    targets = set(re.findall(r"^(\w+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {
        target for document in DOCUMENTS for target in re.findall(r"make (\w+) +#", (REPOSITORY / document).read_text())
    }
    assert named <= targets
    assert {"demo", "test", "lint", "fixtures", "bench"} <= targets


def test_the_notebook_shows_what_its_cells_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    names: dict[str, Any] = {}
    shown = list(notebook_page.cells(notebook_page.PAGE.read_text("utf-8"), names))
    assert len(shown) == 6
    for cell, output in shown:
        assert cell["shown"] == output, "run: python -m tests.support.notebook_page"
    assert names["report"]._repr_html_().startswith("<svg")


def test_the_notebook_in_the_commands_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(REPOSITORY / "fixtures" / "exposed-copy" / "bad.json.gz", tmp_path / "trace.json.gz")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(USE.partition("## In a notebook")[2].partition("```python\n")[2].partition("```")[0], names)
    assert names["report"].findings
    assert len(names["trace"].kernels)


@with_torch
@pytest.mark.filterwarnings("ignore")  # of torch, where there is no GPU
def test_the_recording_in_the_readme_records_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    recording = README.partition("## Record a trace")[2].partition("```python\n")[2].partition("```")[0]
    assert len([line for line in recording.splitlines() if line.strip()]) <= 8
    monkeypatch.chdir(tmp_path)
    weights = torch.rand(8, 8)
    exec(recording, {"loader": [weights] * 20, "train_step": lambda batch: batch @ weights})
    trace = load_file(tmp_path / "trace.json.gz")
    assert (trace.cpu["name"] == "aten::matmul").sum() == 5


def test_the_page_of_indexes_lists_every_cause_and_kind() -> None:
    text = (REPOSITORY / "docs/indexes.md").read_text(encoding="utf-8")
    assert [name for name in (*CAUSES, *KINDS) if f"`{name}`" not in text] == []


@pytest.mark.parametrize(("page", "words"), [("CONTRIBUTING.md", 1_800), ("docs/indexes.md", 2_500)])
def test_pages_for_contributors_are_short(page: str, words: int) -> None:
    assert len((REPOSITORY / page).read_text(encoding="utf-8").split()) <= words
