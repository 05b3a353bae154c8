"""Which rules run, in which order they claim, and what their settings may be."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.paths import REPOSITORY
from tests.support.sample_rules import RULES, Limits
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.finding import Status
from traceanalyzer.rule import registry
from traceanalyzer.rule.registry import MIN_SHARE, Kind, Rule, configured, find_rule, kind_of, select_rules

IDLE = next(rule for rule in RULES if rule.slug == "idle-device")


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> tuple[Rule, ...]:
    monkeypatch.setattr(registry, "all_rules", lambda: RULES)
    return RULES


def test_rules_are_chosen_and_left_out_by_their_slugs(samples: tuple[Rule, ...]) -> None:
    every = [rule.slug for rule in samples]
    assert [rule.slug for rule in select_rules()] == every
    chosen = select_rules(["nothing-wrong", "idle-device"])
    assert [rule.slug for rule in chosen] == ["idle-device", "nothing-wrong"]
    assert [rule.slug for rule in select_rules(ignore=["idle-device"])] == [
        slug for slug in every if slug != "idle-device"
    ]
    assert [rule.slug for rule in select_rules(["idle-device"], ["nothing-wrong"])] == ["idle-device"]
    assert select_rules(["idle-device"], ["idle-device"]) == ()
    for wrong in ({"select": ["idle"]}, {"ignore": ["idle"]}):
        with pytest.raises(BadOption, match="no rule is called 'idle'"):
            select_rules(**wrong)


def test_what_may_have_been_meant_is_said_and_else_all_there_are(samples: tuple[Rule, ...]) -> None:
    with pytest.raises(BadOption) as near:
        find_rule("idle-devices")
    assert near.value.remedy == "Did you mean idle-device?"
    with pytest.raises(BadOption) as far:
        find_rule("xyz")
    assert far.value.remedy == f"The rules are: {', '.join(rule.slug for rule in samples)}."


def test_the_specific_then_the_older_claims_first() -> None:
    """Versions are numbers: 0.10 comes after 0.9."""
    given = [("0.1", 0), ("0.9", 2), ("0.10", 2), ("0.10", 0), ("0.9.1", 0), ("0.9", 0)]
    rules = [replace(IDLE, since=since, specificity=specificity) for since, specificity in given]
    ordered = sorted(rules, key=lambda rule: rule.precedence)
    assert [(rule.since, rule.specificity) for rule in ordered] == [
        ("0.9", 2),
        ("0.10", 2),
        ("0.1", 0),
        ("0.9", 0),
        ("0.9.1", 0),
        ("0.10", 0),
    ]


def test_settings_change_their_limit_of_their_rule_alone(samples: tuple[Rule, ...]) -> None:
    """Several of one rule add up; all else stays."""
    settings: dict[str, str | float] = {
        "idle-device.min_gap_ns": "20000",
        "idle-device.least": "0.25",
        "idle-device.min_share": 0.5,
        "nothing-wrong.min_share": "0",
    }
    changed = {rule.slug: rule for rule in configured(samples, settings)}
    assert dict(changed["idle-device"].in_force()) == {MIN_SHARE: 0.5, "min_gap_ns": 20_000, "least": 0.25}
    assert changed["nothing-wrong"].min_share == 0.0
    assert changed["always-failing"] == next(rule for rule in samples if rule.slug == "always-failing")
    assert [*changed] == [rule.slug for rule in samples]
    assert IDLE.limits == Limits()
    (only,) = configured([IDLE], {"idle-device.least": 1})
    assert (only.min_share, only.limits.least, only.limits.min_gap_ns) == (0.0, 1.0, 10_000)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("idle-device.min_gap_ns", "1.5", "idle-device.min_gap_ns=1.5: not a whole number"),
        ("idle-device.min_gap_ns", 1_000.5, "idle-device.min_gap_ns=1000.5: not a whole number"),
        ("idle-device.min_gap_ns", float("inf"), "idle-device.min_gap_ns=inf: not a whole number"),
        ("idle-device.least", "much", "idle-device.least=much: not a number"),
        ("idle-device.least", "inf", "a threshold is finite and not negative"),
        ("idle-device.least", "nan", "a threshold is finite and not negative"),
        ("idle-device.least", "-0.1", "a threshold is finite and not negative"),
        ("idle-device.most", "1", "rule idle-device has no threshold 'most'"),
        ("nothing-wrong.least", "1", "rule nothing-wrong has no threshold 'least'"),
        ("nothing.least", "1", "no rule is called 'nothing'"),
    ],
)
def test_settings_that_cannot_be_say_why(samples: tuple[Rule, ...], key: str, value: str | float, said: str) -> None:
    with pytest.raises(BadOption) as error:
        configured(samples, {key: value})
    assert said in str(error.value)


def test_a_whole_number_may_be_written_as_a_float(samples: tuple[Rule, ...]) -> None:
    (rule,) = configured([IDLE], {"idle-device.min_gap_ns": 20_000.0})
    assert rule.limits.min_gap_ns == 20_000


def test_findings_are_choices_by_their_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = replace(IDLE, kind=Kind.FACT, causes=("gap", "swap"), choices=("swap",))
    monkeypatch.setattr(registry, "all_rules", lambda: (chosen,))
    kinds = [kind_of("idle-device", cause) for cause in ("gap", "swap", "")]
    assert kinds == [Kind.FACT, Kind.CHOICE, Kind.FACT]
    assert kind_of("unknown", "swap") is Kind.FAULT


def test_a_rule_without_limits_has_its_least_share_alone() -> None:
    rule = next(rule for rule in RULES if rule.slug == "nothing-wrong")
    assert list(rule.in_force()) == [(MIN_SHARE, rule.min_share)]


_RULE = """
from collections.abc import Iterator
from dataclasses import dataclass

from traceanalyzer.rule import Claims, Hits, IdleTime, rule

@dataclass(frozen=True)
class Limits:
    max_pause_ns: int = 5_000

@rule(since="0.1", claims=Claims.EVENT, causes=("pause",), limits=Limits)
def my_rule(idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    '''A title.'''
    yield from ()
"""


def test_of_two_rules_of_one_name_the_second_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_rule_file_that_fails_to_import_is_skipped_and_named(tmp_path: Path, fault: str) -> None:
    shutil.copytree(REPOSITORY / "traceanalyzer", tmp_path / "traceanalyzer")
    (tmp_path / "traceanalyzer" / "rules" / "host" / "my_rule.py").write_text(f"{fault}\n")
    trace = REPOSITORY / "fixtures" / "exposed-copy" / "bad.json.gz"
    code = (
        "import traceanalyzer as ta\n"
        f"report = ta.diagnose({str(trace)!r})\n"
        "print(report.findings[0].rule)\n"
        "print([(o.rule, o.why) for o in report.outcomes if o.status == 'failed'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    finding, failed = done.stdout.splitlines()
    assert finding == "exposed-copy"
    assert "my-rule" in failed
    assert "host/my_rule.py is left out: " in failed
    assert str(Status.FAILED) == "failed"


def test_a_rule_that_is_left_out_says_why_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = registry.Broken("my-rule", "rules/host/my_rule.py", "SyntaxError: invalid syntax")
    monkeypatch.setattr(registry, "broken_files", lambda: (broken,))
    with pytest.raises(BadOption, match=r"rules/host/my_rule.py is left out: SyntaxError: invalid syntax"):
        registry.find_rule("my-rule")
    with pytest.raises(BadOption, match="no rule is called 'other-rule'"):
        registry.find_rule("other-rule")


_MARK = '@rule(since="0.1", claims=Claims.EVENT, causes=("pause",), limits=Limits)'
_OTHER = "\n\n@rule(since='0.1')\ndef other(idle: IdleTime): ...\n"


def package_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package of rules in this folder, with the group `host`."""
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "__init__.py").touch()
    package = ModuleType(f"{tmp_path.name}_rules")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    return package


def test_a_rule_may_be_a_folder_with_helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule is looked for in helpers, or in files whose name begins with an underscore."""
    package = package_at(tmp_path, monkeypatch)
    folder = tmp_path / "host" / "my_rule"
    folder.mkdir()
    (tmp_path / "host" / "_shared.py").touch()
    (folder / "__init__.py").write_text(_RULE)
    (folder / "helper.py").write_text("from traceanalyzer.rules.host.host_gap import host_gap\n")
    rules, broken = registry.rules_of(package)
    assert ([rule.slug for rule in rules], broken) == (["my-rule"], ())
    assert rules[0].group == "host"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (_RULE + _OTHER, "a file has one rule, not my_rule and other"),
        (_RULE.partition("@rule")[0], "no @rule in my_rule"),
        (_RULE.replace(_MARK, "@rule"), "write @rule(since=...), with parentheses and names"),
        (_RULE.replace("def my_rule", "class Other: ...\n\ndef my_rule"), "a rule is a function, not type"),
    ],
)
def test_a_file_has_one_decorated_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: str
) -> None:
    package = package_at(tmp_path, monkeypatch)
    (tmp_path / "host" / "my_rule.py").write_text(text)
    rules, (broken,) = registry.rules_of(package)
    assert rules == ()
    assert error in broken.error
