"""Fixtures for all tests: where the shared traces are, what to do without them, and in which order they run."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hypothesis_profiles import load_profile
from tests.support.paths import SHARED, shared_names
from tests.support.slow_tests import is_listed
from tests.support.trace_selection import takes_long
from tests.support.xdist_groups import group_of, place_of

_ABSENT = f"no shared traces in {SHARED.name}/: set TRACEANALYZER_TRACES to their folder"


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """shared("pairs/addmm_copy.bad") is that trace's path; the test is skipped where it is absent."""

    def path_of(name: str) -> Path:
        path = SHARED / f"{name}.json.gz"
        if not path.exists():
            pytest.skip(_ABSENT)
        return path

    return path_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `shared_trace` runs once for each that its `of_shared` mark wants, or is skipped."""
    if "shared_trace" in metafunc.fixturenames:
        asked = [mark.kwargs["wanted"] for mark in metafunc.definition.iter_markers("of_shared")]
        names = [name for name in shared_names() if not asked or asked[0](name)]
        absent = [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=_ABSENT))]
        grouped = metafunc.definition.get_closest_marker("xdist_group") is not None
        paths = [
            pytest.param(
                SHARED / f"{name}.json.gz",
                id=name,
                marks=[
                    *([] if grouped else [pytest.mark.xdist_group(name)]),
                    *([pytest.mark.slow] if takes_long(name, len(names)) else []),
                ],
            )
            for name in names
        ]
        metafunc.parametrize("shared_trace", paths or absent)


def pytest_configure(config: pytest.Config) -> None:
    """Properties try as many examples as HYPOTHESIS_PROFILE says."""
    config.addinivalue_line("markers", "of_shared(wanted=...): of the shared traces those whose name is wanted")
    config.addinivalue_line(
        "markers", "slow: one more of a kind, or seconds long; left out by `make test`, run by .ci/run"
    )
    if config.getoption("dist", "no") == "loadgroup" and not hasattr(pytest.Item, "_nodeid"):
        raise pytest.UsageError("xdist cannot group the tests with this pytest: see pyproject.toml")
    load_profile()
    if hasattr(config, "workerinput"):  # one of several processes: pytest's folder of the run is above its own
        os.environ["TRACEANALYZER_TEST_RUN"] = str(Path(config.option.basetemp).parent)


@pytest.hookimpl(tryfirst=True)  # xdist takes the groups from the marks when its turn comes
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one shared trace run one after the other, so that it is read once; xdist keeps them on one worker.

    Coverage has to come from what a clone without shared traces runs, and from what is the same in every run.
    """
    names = set(shared_names())
    for item in items:
        named = _named(item, names)
        if named and group_of(item) is None:
            item.add_marker(pytest.mark.xdist_group(named))
        if is_listed(item):
            item.add_marker("slow")
        if group_of(item) is not None or _is_property(item):  # tracing takes half as long again
            item.add_marker("no_cover")
    items.sort(key=place_of)


def pytest_collection_finish() -> None:
    """The cyclic collector leaves the tests alone and comes more seldom: it takes a tenth of the run else."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_unconfigure() -> None:
    """What libraries count as leaked at the end is not."""
    gc.unfreeze()


def _is_property(item: pytest.Item) -> bool:
    """Whether hypothesis chooses what it tries."""
    return bool(getattr(getattr(item, "function", None), "is_hypothesis_test", False))


def _named(item: pytest.Item, names: set[str]) -> str | None:
    """The shared trace that a parameter of the test or else its body names, as a whole or as a pair."""
    given = getattr(getattr(item, "callspec", None), "params", {}).values()
    code = getattr(getattr(item, "function", None), "__code__", None)
    texts = [text for text in (*given, *getattr(code, "co_consts", ())) if isinstance(text, str)]
    return next((full for text in texts for full in (text, f"{text}.bad") if full in names), None)
