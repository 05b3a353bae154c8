"""What an author of rules gets wrong raises a sentence, instead of a number."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.rule.grouped import kernels, scope
from tests.rules.loops import Loop, loop_of
from tests.support.paths import REPOSITORY
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Status
from traceanalyzer.replay import edits
from traceanalyzer.rule import Calls, Hits, IdleTime, LostTime, Work, registry
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.rule.judging import judge


def pauses(loop: Loop, number: int) -> None:
    loop.pause(50_000 * number)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return Analysis(loop_of(pauses))


@pytest.mark.parametrize("view", [Calls, Work, IdleTime])
def test_a_mask_of_another_length_is_refused(analysis: Analysis, view: type) -> None:
    rows = analysis.index(view)
    for length in (len(rows) - 1, len(rows) + 1, 1):
        with pytest.raises(IndexError, match=rf"a mask of {length:,} rows cannot choose of {len(rows):,}"):
            rows[np.ones(length, bool)]
    assert len(rows[np.ones(len(rows), bool)]) == len(rows)


def test_rows_are_chosen_as_of_an_array(analysis: Analysis) -> None:
    work = analysis.index(Work)
    starts = work.start_ns.tolist()
    assert work[1].start_ns.tolist() == starts[1:2]
    assert work[-1].start_ns.tolist() == starts[-1:]
    assert work[0:2].start_ns.tolist() == starts[:2]
    assert work[[1, 0]].start_ns.tolist() == [starts[1], starts[0]]
    assert len(work[[]]) == 0
    with pytest.raises(IndexError, match="positions from 99 to 99 cannot choose of"):
        work[99]
    with pytest.raises(TypeError, match="by a mask, positions or a slice, not by float64"):
        work[np.array([0.0])]


def test_lost_time_without_owner_is_refused(analysis: Analysis) -> None:
    idle = analysis.index(IdleTime)
    owner = np.full(len(idle), -1)
    with pytest.raises(ValueError, match=rf"{len(idle)} of {len(idle)} lost stretches have no owner"):
        LostTime.all_of(idle, owner)
    with pytest.raises(ValueError, match=rf"{len(idle) + 1} owners of {len(idle)} lost stretches"):
        LostTime.all_of(idle, np.zeros(len(idle) + 1, np.int64))


@pytest.mark.parametrize(
    ("column", "wrong", "why"),
    [
        ("start_ns", np.array([9, 9]), "1 of 2 lost stretches end before they start"),
        ("end_ns", np.array([5.0, 9.0]), "end_ns of lost stretches has integers, not float64"),
        ("owner", np.array([True, False]), "owner of lost stretches has integers, not bool"),
    ],
)
def test_lost_time_that_cannot_be_is_refused(column: str, wrong: np.ndarray, why: str) -> None:
    columns = {name: np.array([0, 0]) for name in ("owner", "device")}
    columns |= {"start_ns": np.array([0, 5]), "end_ns": np.array([5, 9])}
    LostTime(**columns)
    with pytest.raises(ValueError, match=why):
        LostTime(**columns | {column: wrong})


def test_an_excess_below_nothing_is_refused(analysis: Analysis) -> None:
    work = analysis.index(Work)
    excess = np.zeros(len(work), np.int64)
    assert LostTime.excess(work, excess).sums(len(work)).sum() == 0
    excess[0] = -1
    with pytest.raises(
        ValueError, match=rf"1 of {len(work)} excesses are negative: leave out what loses nothing"
    ):
        LostTime.excess(work, excess)


@pytest.mark.parametrize(
    ("needed", "why"),
    [
        (-1.0, "1 of 3 needed_ns are negative or no number: 0 takes the work away"),
        (np.nan, "1 of 3 needed_ns are negative or no number"),
        (9e9, "1 of 3 needed_ns are more than the work takes: leave it out"),
    ],
)
def test_work_cannot_need_less_than_nothing_or_more_than_it_takes(
    analysis: Analysis, needed: float, why: str
) -> None:
    work = analysis.index(Work)[0:3]
    wanted = work.dur_ns.astype(np.float64)
    assert reduce_to(work, wanted)["lost"].sums(3).sum() == 0
    spared = reduce_to(work, wanted * np.array([0, 1, 0]) + np.array([0, 0, 1]))
    assert spared["lost"].sums(3).tolist() == [wanted[0], 0, wanted[2] - 1]
    gone, resized = spared["fix"]
    assert (gone.work.tolist(), resized.work.tolist()) == ([0], [1, 2])
    wanted[1] = needed
    with pytest.raises(ValueError, match=why):
        reduce_to(work, wanted)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"evidence": {"gpu_share": 1.7}},
            "evidence gpu_share is 1.7: a share is 0 to 1, gpu_times may be more",
        ),
        ({"evidence": {"gpu_share": -0.1}}, "evidence gpu_share is -0.1: a share is 0 to 1"),
        ({"evidence": {"wait_ns": np.nan}}, "evidence wait_ns is nan: give None where it is not known"),
        ({"evidence": {"ops": {"aten::mm": np.inf}}}, "evidence ops is inf: give None"),
        ({"normal_share": 2.0}, "normal_share is 2: a share is 0 to 1"),
        (
            {"advice": "Use {torch.no_such}."},
            r"advice marks \{torch.no_such\}, which rule/recorded_with.py does not",
        ),
        ({"advice": "Give {fused=True to Lion}."}, r"advice marks \{fused=True to Lion\}"),
    ],
)
def test_hits_that_say_what_cannot_be_are_refused(given: dict[str, Any], why: str) -> None:
    kernels(
        (0, 5), evidence={"gpu_share": 1.0, "wait_ns": None}, advice="{torch.compile} for {lambda(int)#1}."
    )
    with pytest.raises(ValueError, match=why):
        kernels((0, 5), **given)


def test_a_cause_that_is_not_declared_fails_the_rule() -> None:
    hits = [kernels((0, 5), cause=cause) for cause in ("", "declared", "other")]
    described = registry._describe(registry.rule(since="0.1", causes=("declared",))(_yields))
    for one, allowed in zip(hits, (True, True, False), strict=True):
        given = replace(described, function=lambda one=one: iter([one]), needs={})
        judged = judge([given], _analysis_of(one), scope(), None)
        assert (judged.outcomes[0].status is not Status.FAILED) == allowed
    assert judged.outcomes[0].rule == "-yields"
    assert "does not declare the cause 'other': add it to causes=(...)" in str(judged.outcomes[0].why)


def _analysis_of(hits: Hits) -> Analysis:
    return Analysis(hits.occurrences.events.trace).with_index(hits.occurrences.events)


def _yields() -> Iterator[Hits]:
    """Whatever a test gives."""
    yield from ()


_ROWS = np.array([3, 1])


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda: edits.Drop(np.array([True, False])), "not a mask"),
        (lambda: edits.Drop([2, -1]), "1 of 2 rows of an edit are negative"),
        (lambda: edits.DropWork([-1]), "1 of 1 rows of an edit are negative"),
        (lambda: edits.Drop(_ROWS, leaving_ns=-1.0), "leaving_ns is negative"),
        (lambda: edits.DropSpans([5], [4]), "1 of 1 spans end before they start"),
        (lambda: edits.DropSpans([5, 6], [7]), "2 starts_ns and 1 ends_ns: each span has both"),
        (lambda: edits.ShrinkGaps([5], [4]), "1 of 1 spans end before they start"),
        (lambda: edits.Resize(_ROWS, np.array([1.0])), "1 numbers of dur_ns for 2 rows"),
        (lambda: edits.Resize(_ROWS, np.array([1.0, np.nan])), "dur_ns is negative or no number"),
        (lambda: edits.Resize(_ROWS, np.array([1.0, -1.0])), "dur_ns is negative or no number"),
        (lambda: edits.Scale(_ROWS, -5.0), "factor is negative or no number"),
        (lambda: edits.SplitAcrossRanks(_ROWS, np.inf), "factor is negative or no number"),
        (lambda: edits.Insert(_ROWS, -1e9), "cpu_ns is negative or no number"),
        (lambda: edits.CapOps(-1.0), "most_ns is negative or no number"),
    ],
)
def test_edits_that_cannot_be_are_refused(edit: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        edit()


_RULE = """
from collections.abc import Iterator
from dataclasses import dataclass

from traceanalyzer.rule import Claims, Hits, IdleTime, limit, rule

@dataclass(frozen=True)
class Limits:
    max_pause_ns: int = limit(5_000, "longer ones count")

@rule(since="0.1", claims=Claims.EVENT, causes=("pause",), limits=Limits)
def my_rule(idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    '''A title.'''
    yield from ()
"""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("'A title.'", "''", "docstring is its page"),
        ("(5_000,", "(-5,", "limit max_pause_ns=-5: finite and not negative"),
        ("(5_000,", "(0.5,", "limit max_pause_ns=0.5: less than any kernel or call"),
        ("(5_000,", "(500.5,", "limit max_pause_ns=500.5: not a whole number"),
        ("max_pause_ns: int = limit(5_000", "max_share: float = limit(7.0", "a share at most 1"),
        ("max_pause_ns: int", "max_pause: int", "limit max_pause has no unit in its name: end it in _ns"),
        ("max_pause_ns: int", "max_pause_us: int", "limit max_pause_us has no unit in its name"),
        ("Claims.EVENT,", "Claims.EVENT, min_share=-1,", "limit min_share=-1"),
        ('since="0.1"', 'since="abc"', "since='abc' is no version"),
        ('("pause",)', '("a pause",)', "cause 'a pause' is not kebab-case"),
        ("idle: IdleTime", "idle: Nothing", "Nothing"),
        ("def my_rule", "def hotspot", "rule hotspot is in a file of another name"),
        ("from collections.abc import Iterator", "raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_rule_declared_wrongly_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, why: str
) -> None:
    assert old in _RULE
    for number, text in enumerate((_RULE, _RULE.replace(old, new))):
        folder = tmp_path / str(number)
        (folder / "host").mkdir(parents=True)
        (folder / "host" / "__init__.py").touch()
        file = folder / "host" / "my_rule.py"
        file.write_text(text)
        package = ModuleType(f"{tmp_path.name}_{number}")
        package.__path__ = [str(folder)]
        monkeypatch.setitem(sys.modules, package.__name__, package)
        rules, broken = registry.rules_of(package)
        if text == _RULE:
            assert ([one.slug for one in rules], broken) == (["my-rule"], ())
        else:
            assert rules == ()
            assert (broken[0].slug, broken[0].file) == ("my-rule", str(file))
            assert why in broken[0].error


def test_of_two_rules_of_one_name_the_second_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("first", "second"):
        (tmp_path / group).mkdir()
        (tmp_path / group / "__init__.py").touch()
        (tmp_path / group / "my_rule.py").write_text(_RULE)
    package = ModuleType(tmp_path.name)
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    rules, (broken,) = registry.rules_of(package)
    assert [(one.slug, one.group) for one in rules] == [("my-rule", "first")]
    assert f"{tmp_path.name}.first.my_rule has a rule of this name, too" in broken.error


@pytest.mark.parametrize("fault", ["import no_such_package", "raise ZeroDivisionError('at import')", "def ("])
def test_a_file_of_rules_that_cannot_be_imported_is_left_out_and_named(tmp_path: Path, fault: str) -> None:
    shutil.copytree(REPOSITORY / "traceanalyzer", tmp_path / "traceanalyzer")
    (tmp_path / "traceanalyzer" / "rules" / "host" / "my_rule.py").write_text(f"{fault}\n")
    trace = REPOSITORY / "fixtures" / "exposed-copy" / "bad.json.gz"
    code = (
        "import traceanalyzer as ta\n"
        f"report = ta.diagnose({str(trace)!r})\n"
        "print(report.findings[0].rule)\n"
        "print([(o.rule, o.why) for o in report.outcomes if o.status == 'failed'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    finding, failed = done.stdout.splitlines()
    assert finding == "exposed-copy"
    assert "my-rule" in failed
    assert "host/my_rule.py is left out: " in failed
    assert str(Status.FAILED) == "failed"
