"""`traceanalyzer explain` knows every cause that a report shows."""

import re

import pytest

from tests.cli.commands import call
from tests.support.expected import FOLDER
from traceanalyzer.idle.causes import CAUSES
from traceanalyzer.report.words import in_words
from traceanalyzer.rule.registry import all_rules

SEE = ": see traceanalyzer explain "


def rules_in(page: str) -> set[str]:
    """The rules whose pages are here, and those whose pages are named."""
    return {line.partition(SEE)[2] for line in page.splitlines() if SEE in line} | {
        line.partition("  (")[0] for line in page.splitlines() if "  (" in line and ", added in version " in line
    }


LINE = re.compile(r"^\w+ +(?:-?\d+ %)? +([\w-]+) \(([\w-]+)[,)]", re.MULTILINE)


def found() -> set[tuple[str, str]]:
    """(rule, cause) of every finding in the fixtures."""
    sections = (FOLDER / "fixtures").glob("*.txt")
    texts = (file.read_text(encoding="utf-8") for file in sections)
    return {match for text in texts for match in LINE.findall(text)}


def test_rules_state_every_cause_of_their_findings() -> None:
    stated = {(rule.slug, cause) for rule in all_rules() for cause in rule.causes}
    assert found()
    assert found() - stated == set()


@pytest.mark.parametrize(("rule", "cause"), sorted(found()))
def test_a_cause_leads_to_its_rule(rule: str, cause: str) -> None:
    for spelt in (cause, in_words(cause)):
        assert rule in rules_in(call("explain", *spelt.split()).stdout)


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_of_idle_time_is_explained_as_reports_call_it(cause: str) -> None:
    said = in_words(cause)
    slugs = [rule.slug for rule in all_rules()]
    page = call("explain", *(cause if said in slugs else said).split()).stdout
    assert "holds if" in page
    assert "scheduler-gap" in rules_in(page)


@pytest.mark.parametrize("cause", ["compute", "memory", "link"])
def test_words_that_rules_merely_contain_are_not_their_causes(cause: str) -> None:
    page = call("explain", cause)
    named = rules_in(page.stdout)
    assert "hotspot" in named
    assert named <= {"hotspot"} | {rule.slug for rule in all_rules() if rule.group == cause}


@pytest.mark.parametrize(
    ("cause", "rule"),
    [("synchronisation", "long-device-sync"), ("host work", "host-hotspot"), ("host-collective", "host-collectives")],
)
def test_idle_cause_leads_to_rules_that_claim_its_time(cause: str, rule: str) -> None:
    """Though no finding of theirs has it as its own cause."""
    (own,) = [one for one in all_rules() if one.slug == rule]
    assert cause.replace(" ", "-") not in own.causes
    assert rule in rules_in(call("explain", *cause.split()).stdout)


def test_explain_prefers_rules_to_groups_to_causes() -> None:
    assert rules_in(call("explain", "scheduler-gap").stdout) == {"scheduler-gap"}
    assert rules_in(call("explain", "compile").stdout) >= {"compile"}
    memory = call("explain", "memory").stdout
    assert {"allocator-thrash", "dense-gradient"} <= rules_in(memory)
    assert f'hotspot also has a case "memory"{SEE}hotspot' in memory
    assert f'dense-gradient also has a case "memory"{SEE}' not in memory


@pytest.mark.parametrize("spelt", ["Host Code", " host-code ", "host_code_once", "host code once"])
def test_a_cause_may_be_spelt_as_people_do_and_is_the_same_once(spelt: str) -> None:
    page = call("explain", spelt).stdout
    assert page.startswith("cause      host-code\n")
    assert page.count("cause      ") == 1


def test_cause_of_findings_is_named_before_pages_of_its_rules() -> None:
    first, *_ = call("explain", "checkpoint").stdout.split("\n\n")
    assert " ".join(first.split()) == "Findings of recomputation may have the cause checkpoint."
    table = call("explain", "waiting").stdout
    assert "may have the cause" not in table
    assert {"exposed-communication", "scheduler-gap"} <= rules_in(table)


def test_a_page_lists_the_causes_of_its_rule() -> None:
    page = call("explain", "allocator-thrash").stdout
    assert "Causes: emptied, full, growing, off, workspace, pinned.\n" in page


def test_verbose_pages_explain_thresholds() -> None:
    for name in ("host-gap", "host", "checkpoint", "host code"):
        short, whole = call("explain", *name.split()).stdout, call("explain", *name.split(), "-v").stdout
        assert rules_in(short) == rules_in(whole)
        assert len(whole.splitlines()) > len(short.splitlines()) + 3


def test_group_named_like_a_cause_leads_to_its_rules() -> None:
    compile_page = call("explain", "compile").stdout
    assert rules_in(compile_page) == {"compile", "launch-bound"}
    assert " ".join(compile_page.splitlines()[-2:]).endswith(f'launch-bound also has a case "compile"{SEE}launch-bound')
    assert SEE not in call("explain", "host").stdout
