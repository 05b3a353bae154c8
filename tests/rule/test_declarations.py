"""What a rule declares and no rule can mean leaves its file out, with a sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.rule.careless import left_out
from traceanalyzer.model.errors import BadOption
from traceanalyzer.rule.registry import all_rules, configured, rules_of
from traceanalyzer.version import __version__

_RULE = """
from collections.abc import Iterator
from dataclasses import dataclass
from traceanalyzer.rule import Claims, Hits, IdleTime, Kind, limit, rule

@dataclass(frozen=True)
class Limits:
    max_pause_ns: int = limit(5_000, "longer ones count")

@rule(since="0.1", causes=("pause", "wait"), limits=Limits)
def my_rule(idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    '''A title.'''
    yield from ()
"""
_WITHOUT = _RULE.partition("@rule")[0]


def test_a_file_as_the_guide_says_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert left_out(tmp_path, monkeypatch, _RULE) is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("causes=", "claims='event', causes=", "claims='event': one of Claims.RECORDING, Claims.ONCE"),
        ("causes=", "claims=None, causes=", "claims=None: one of Claims.RECORDING"),
        ("causes=", "kind='fact', causes=", "kind='fact': one of Kind.FAULT"),
        ("causes=", "specificity='1', causes=", "specificity='1': a whole number"),
        ("causes=", "specificity=True, causes=", "specificity=True: a whole number"),
        ("causes=", "min_share=True, causes=", "limit min_share=True: a number"),
        ("causes=", "min_share='0.1', causes=", "limit min_share='0.1': a number"),
        ('since="0.1"', "since=0.1", "since=0.1: a text, since='0.1'"),
        ('since="0.1", ', "", "since='' is no version"),
        ('since="0.1"', 'since="99.1"', "since='99.1' is later than this version"),
        ('("pause", "wait")', '("pause")', "causes='pause': a tuple of texts"),
        ('("pause", "wait")', "('pause', 3)", "causes=('pause', 3): a tuple of texts"),
        ("causes=", "choices='pause', causes=", "choices='pause': a tuple of texts"),
        ("causes=", "choices=('paws',), causes=", "choices has paws, which causes lacks"),
        ("limits=Limits", "limits=Limits()", "give the class, limits=Limits, not one of its instances"),
        ("frozen=True", "frozen=False", "Limits is no frozen dataclass"),
        ("@dataclass(frozen=True)", "", "Limits is no frozen dataclass"),
        (
            'limit(5_000, "longer ones count")',
            "5_000",
            "limit max_pause_ns is made by limit(default, source)",
        ),
        ('= limit(5_000, "longer ones count")', "", "limit max_pause_ns is made by limit(default, source)"),
        (
            '    max_pause_ns: int = limit(5_000, "longer ones count")',
            "    most = 5",
            "limit most has no annot",
        ),
        (": int = limit(", " = limit(", "is a field but has no type annotation"),
        ("longer ones count", " ", "limit max_pause_ns has no source"),
        ("max_pause_ns: int", "max_pause_ns: str", "limit max_pause_ns is int or float, not <class 'str'>"),
        ("limit(5_000", "limit('5_000'", "limit max_pause_ns='5_000': a number"),
        ("max_pause_ns: int", "min_share: int", "every rule has a limit min_share"),
        ("max_pause_ns", "max_secs", "limit max_secs has no unit in its name"),
        ("max_pause_ns", "max_pause_micros", "limit max_pause_micros has no unit in its name"),
        ("max_pause_ns", "max_gigabytes", "limit max_gigabytes has no unit in its name"),
        ("idle: IdleTime", "idle: int", "parameter idle is of int, which is no index"),
        ("idle: IdleTime", "idle", "parameter idle has no annotation: its type is the index"),
        (
            "idle: IdleTime, limits: Limits",
            "idle: IdleTime",
            "a rule has limits as @rule(limits=Limits) and as a par",
        ),
        (", limits=Limits)", ")", "a rule has limits as @rule(limits=Limits) and as a parameter"),
        ('@rule(since="0.1", causes=("pause", "wait"), limits=Limits)', "@rule", "write @rule(since=...)"),
        ("def my_rule", "class Other: ...\n\ndef my_rule", "a rule is a function, not type"),
        ('@rule(since="0.1", causes=("pause", "wait"), limits=Limits)', "", "no @rule in my_rule"),
        ("class Limits:", "class Own(BaseException): 'x'\nraise Own\nclass Limits:", "Own"),
    ],
)
def test_what_no_rule_can_mean_leaves_its_file_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, why: str
) -> None:
    assert old in _RULE
    found = left_out(tmp_path, monkeypatch, _RULE.replace(old, new, 1))
    assert why in str(found)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('since="0.1"', f'since="{__version__}"', None),
        ('since="0.1"', f'since="{__version__}.1"', "is later than this version"),
        ('since="0.1"', 'since="0.1a"', "since='0.1a' is no version"),
        ("5_000", "100", None),
        ("5_000", "99", "limit max_pause_ns=99: less than any kernel or call takes, give ns"),
        ("5_000", "0", None),
        ("5_000", "-1", "limit max_pause_ns=-1: finite and not negative"),
        ("5_000", "5_000.0", "limit max_pause_ns=5000.0: not a whole number"),
        ("max_pause_ns: int = limit(5_000", "pause_share: float = limit(1.0", None),
        ("max_pause_ns: int = limit(5_000", "pause_share: float = limit(1", None),
        ("max_pause_ns: int = limit(5_000", "pause_share: float = limit(1.01", "and a share at most 1"),
        ("max_pause_ns: int = limit(5_000", "max_share_of_gaps: float = limit(1.01", "and a share at most 1"),
        ("max_pause_ns: int = limit(5_000", "pause_times: float = limit(1.01", None),
        ("causes=", "choices=('pause', 'wait'), causes=", None),
        ("causes=", "choices=('pause', 'paws'), causes=", "choices has paws, which causes lacks"),
        ('("pause", "wait")', '("pause", "long-wait-2")', None),
        ('("pause", "wait")', '("pause", "Wait")', "cause 'Wait' is not kebab-case"),
        ('("pause", "wait")', '("pause", "long_wait")', "cause 'long_wait' is not kebab-case"),
        ('("pause", "wait")', '("pause", "wait-")', "cause 'wait-' is not kebab-case"),
        ("causes=", "min_share=1.0, causes=", None),
        (
            "causes=",
            "min_share=1.5, causes=",
            "limit min_share=1.5: finite and not negative, and a share at most 1",
        ),
    ],
)
def test_what_is_just_possible_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, why: str | None
) -> None:
    assert old in _RULE
    found = left_out(tmp_path, monkeypatch, _RULE.replace(old, new, 1))
    assert found is None if why is None else why in str(found)


def test_a_rule_may_have_a_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files that help it, in which no rule is; nothing is looked for in those that begin with a line."""
    folder = tmp_path / "host" / "my_rule"
    folder.mkdir(parents=True)
    (tmp_path / "host" / "__init__.py").touch()
    (tmp_path / "host" / "_shared.py").touch()
    (folder / "__init__.py").write_text(_RULE)
    (folder / "helper.py").write_text("from traceanalyzer.rules.host.host_gap import host_gap\n")
    package = ModuleType(f"{tmp_path.name}_folder")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    rules, broken = rules_of(package)
    assert ([one.slug for one in rules], broken) == (["my-rule"], ())
    assert rules[0].group == "host"


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("hotspot.min_share", "7", "hotspot.min_share=7: finite and not negative, and a share at most 1"),
        ("host-gap.min_gap_ns", "5", "host-gap.min_gap_ns=5: less than any kernel or call takes, give ns"),
    ],
)
def test_users_set_what_authors_may(key: str, value: str, why: str) -> None:
    assert configured(all_rules(), {key: "0"})
    with pytest.raises(BadOption, match=why):
        configured(all_rules(), {key: value})
