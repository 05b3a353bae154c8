"""The server as a client sees it, and answers to agents."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.commands import call, written
from tests.comparison.programs import ADDED, MM, built
from tests.rules.kernel_programs import Op
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.integrations import answers
from traceanalyzer.integrations.answers import MAX_BYTES, Roots, capped
from traceanalyzer.model.errors import BadOption

REPOSITORY = Path(__file__).parents[2]
FIXTURES = REPOSITORY / "fixtures"
TRACE = "implicit-sync/bad.json.gz"


def test_a_client_asks_all_tools_and_reads_the_units(tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    from mcp import StdioServerParameters

    shutil.copytree(FIXTURES / "implicit-sync", tmp_path / "implicit-sync")
    outside = tmp_path.parent / "outside.json.gz"
    shutil.copy(FIXTURES / TRACE, outside)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "traceanalyzer", "mcp", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    asked = {
        "diagnose": [({"trace": TRACE}, "implicit-sync"), ({"trace": "a\0b"}, "error: ")],
        "brief": [({"trace": TRACE}, "# Repair brief")],
        "explain": [({"rule": "implicit-sync"}, "reads back"), ({"rule": "no-rule" * 20_000}, "error: ")],
        "events": [
            ({"trace": TRACE, "window": "0ms:50ms"}, "GPU"),
            ({"trace": TRACE, "window": "x" * 100_000}, "error: "),
        ],
        "list_events": [
            ({"trace": TRACE, "what": "syncs"}, "reading_back.py(19)"),
            ({"trace": TRACE, "what": "syncs", "step": 99}, "error: "),
            ({"trace": TRACE, "what": "dogs"}, "error: "),
        ],
        "compare": [({"base": TRACE, "new": "implicit-sync/good.json.gz"}, "faster")],
    }

    async def talk() -> None:
        async with mcp.Client(server, read_timeout_seconds=120) as client:
            listed = (await client.list_tools()).tools
            assert {tool.name for tool in listed} == set(asked)
            assert all(tool.annotations and tool.annotations.read_only_hint for tool in listed)
            for name, questions in asked.items():
                for arguments, expected in questions:
                    answer = await client.call_tool(name, arguments)
                    text = answer.content[0].text
                    assert answer.structured_content is None
                    assert bool(answer.is_error) is (expected == "error: ")
                    assert expected in text, (name, arguments, text)
                    assert len(text.encode()) <= (5_000 if answer.is_error else MAX_BYTES)
                    assert "Traceback" not in text
            units = await client.read_resource("traceanalyzer://units")
            assert units.contents[0].text == answers.UNITS

    asyncio.run(talk())


def test_an_answer_ends_at_a_line_and_says_what_was_cut() -> None:
    text = "".join(f"line {n} µ\n" for n in range(5_000))
    cut = capped(text, "Ask less.")
    assert len(cut.encode()) <= MAX_BYTES
    kept, _, note = cut.partition("\n[cut: ")
    assert text.startswith(kept + "\n")
    assert "Ask less." in note
    assert capped("short\n", "") == "short\n"


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret.json", "link.json", "missing.json", "a\0b", "x" * 5_000])
def test_nothing_outside_the_folders_is_read(path: str, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(BadOption, match="no such file under"):
        Roots((root,)).path(path)


def test_events_of_a_window_are_those_that_overlap_it() -> None:
    roots = Roots((FIXTURES,))
    whole, part = (answers.events(roots, TRACE, window) for window in ("0ms:", "1ms:1.2ms"))
    assert "the longest 60 at most" in whole
    starts = [float(line.split("  ")[2]) for line in part.splitlines()[2:]]
    ends = [start + float(line.split("  ")[3]) for start, line in zip(starts, part.splitlines()[2:], strict=True)]
    assert starts
    assert all(start < 1_200 for start in starts)
    assert all(end > 1_000 for end in ends)


def listed(trace: TraceBuilder, folder: Path, window: str) -> list[list[str]]:
    """Columns of the events that are listed of a window."""
    trace.write(folder / "trace.json")
    text = answers.events(Roots((folder,)), "trace.json", window)
    return [line.split("  ") for line in text.splitlines()[2:]]


@pytest.mark.parametrize(
    ("window", "ids"),
    [
        ("4ms:5ms", [0]),
        ("0ms:1ms", [0]),
        ("0ms:", [0, 1, 2]),
        ("9ms:9.999ms", [0]),
        ("9.999ms:10ms", [0, 1]),
        ("10ms:20ms", [1, 2]),
    ],
)
def test_event_that_only_touches_a_window_is_not_in_it(window: str, ids: list[int], tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.op("aten::long", 50_000_000, 10_000_000)
    trace.op("aten::later", 59_999_000, 2_000, tid=17)
    trace.kernel(69_999_999, 5_000_000, 1, name="last", stream=9)
    rows = listed(trace, tmp_path, window)
    assert [int(row[6]) for row in rows] == ids
    if ids == [0, 1, 2]:
        assert rows == [
            ["CPU", "1000", "0.000", "10000.000", "cpu_op", "aten::long", "0"],
            ["CPU", "17", "9999.000", "2.000", "cpu_op", "aten::later", "1"],
            ["GPU", "9", "19999.999", "5000.000", "kernel", "last", "2"],
        ]


def test_longest_events_are_listed_in_time_order(tmp_path: Path) -> None:
    """Of equally long ones the first."""
    trace = TraceBuilder()
    for number in range(70):
        trace.op("aten::op", number * 10_000, 2_000 if number % 10 == 0 else 1_000)
    ids = [int(row[6]) for row in listed(trace, tmp_path, "0ms:")]
    assert ids == [*range(59), 60]


def test_a_file_is_of_the_first_folder_that_has_it(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "both.json").write_text("{}")
    (other / "own.json").write_text("{}")
    roots = answers.roots_of([one, other])
    assert roots.path("both.json") == one / "both.json"
    assert roots.path("own.json") == other / "own.json"
    assert roots.path(str(other / "both.json")) == other / "both.json"
    assert roots.path(".") == one
    with pytest.raises(BadOption, match="is no folder"):
        answers.roots_of([one, one / "both.json"])


@pytest.mark.parametrize(("size", "kept"), [(MAX_BYTES, True), (MAX_BYTES + 1, False)])
def test_an_answer_of_the_most_bytes_is_whole(size: int, kept: bool) -> None:
    text = "x\n" * (size // 2) + "x" * (size % 2)
    assert (capped(text, "") == text) is kept


def test_a_group_is_explained_by_the_pages_of_its_rules() -> None:
    pages = answers.explained("recording")
    assert answers.explained("activity-buffer-request") in pages
    assert answers.explained("trace-health") in pages
    assert "implicit-sync  (" not in pages


def test_the_skill_is_copied_with_its_references(tmp_path: Path) -> None:
    installed = call("skill", "--install", tmp_path)
    assert (installed.exit_code, installed.stdout) == (0, "")
    assert installed.stderr == f"{tmp_path / 'traceanalyzer'}: 3 files\n"
    copied = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.md"))
    assert copied == [
        "traceanalyzer/SKILL.md",
        "traceanalyzer/references/recording.md",
        "traceanalyzer/references/units.md",
    ]
    text = (tmp_path / copied[0]).read_text("utf-8")
    assert text.startswith("---\nname: traceanalyzer\ndescription: ")
    assert call("skill").stdout == text
    assert call("skill", "--install", tmp_path).exception is not None
    assert call("skill", "--install", tmp_path, "--force").exit_code == 0


def test_the_skill_names_commands_and_options_that_exist() -> None:
    text = call("skill").stdout
    recording = (REPOSITORY / "traceanalyzer/integrations/skill/references/recording.md").read_text("utf-8")
    for command, options in {
        "record": ["--stop", "--stacks", "--shapes", "--every-call-of"],
        "diagnose": ["--no-config", "--window", "--verbose", "--step-ms"],
    }.items():
        shown = call(command, "--help").stdout
        for option in options:
            assert option in text + recording
            assert option in shown
    units = (REPOSITORY / "traceanalyzer/integrations/skill/references/units.md").read_text("utf-8")
    assert units.endswith(answers.UNITS)


def test_a_link_within_a_folder_leads_nowhere_else(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / TRACE, tmp_path / "secret.json.gz")
    folder = tmp_path / "root" / "job"
    folder.mkdir(parents=True)
    (folder / "rank0.json.gz").symlink_to(tmp_path / "secret.json.gz")
    for name in ("job", "."):
        with pytest.raises(BadOption, match="a link in it leads out of the folders"):
            Roots((tmp_path / "root",)).path(name)


def test_files_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(FIXTURES / TRACE, tmp_path / "a.json.gz")
    monkeypatch.setattr(answers, "MAX_FILE_BYTES", 1_000)
    with pytest.raises(BadOption, match="its files have more than"):
        Roots((tmp_path,)).path("a.json.gz")


@pytest.mark.parametrize("count", [59, 61])
def test_all_events_of_a_window_count_though_few_are_listed(count: int, tmp_path: Path) -> None:
    made = TraceBuilder()
    for at in range(count):
        made.op("aten::mm", at * 10_000, 1_000 + at)
    made.write(tmp_path / "trace.json")
    lines = answers.events(Roots((tmp_path,)), "trace.json", "0ms:50ms").splitlines()
    assert lines[0].startswith(f"{count} events overlap the window")
    assert len(lines) == 2 + min(count, 60)


def test_a_name_of_an_event_is_one_line_of_printable_characters(tmp_path: Path) -> None:
    made = TraceBuilder()
    made.op("bell\x07 and\nline", 0, 9_000)
    made.op("x" * 500, 10_000, 9_000)
    made.write(tmp_path / "trace.json")
    said = answers.events(Roots((tmp_path,)), "trace.json", "0ms:50ms")
    assert len(said.splitlines()) == 4
    assert "\x07" not in said
    assert "x" * 160 + "  " in said
    assert "x" * 161 not in said


def test_the_second_trace_is_what_the_first_became(tmp_path: Path) -> None:
    slow = Op(MM.name, MM.kernel, 700, MM.dims, MM.types)
    built([MM, ADDED], steps=3).write(tmp_path / "base.json")
    built([slow, ADDED], steps=3).write(tmp_path / "new.json")
    said = answers.compared(Roots((tmp_path,)), "base.json", "new.json")
    assert said.splitlines()[0].endswith(" slower")


def test_the_whole_report_is_longer(tmp_path: Path) -> None:
    written(tmp_path / "trace.json")
    short, whole = (answers.diagnosed(Roots((tmp_path,)), "trace.json", verbose) for verbose in (False, True))
    assert len(whole.splitlines()) > len(short.splitlines())
    assert short == answers.diagnosed(Roots((tmp_path,)), "trace.json")
