"""The names that users import."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import traceanalyzer
from traceanalyzer.version import __version__


def test_every_public_name_is_there() -> None:
    for name in traceanalyzer.__all__:
        assert getattr(traceanalyzer, name) is not None
    assert set(traceanalyzer.__all__) == set(dir(traceanalyzer))
    assert {"load", "diagnose", "kernels", "queue_depth", "Trace", "Finding", "Report", "Severity"} <= set(
        traceanalyzer.__all__
    )
    assert traceanalyzer.__version__ == __version__


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = traceanalyzer.nothing


def test_no_module_takes_the_name_of_a_public_function() -> None:
    importlib.import_module("traceanalyzer.cli.diagnose")
    assert callable(traceanalyzer.diagnose)
    assert callable(traceanalyzer.load)
    modules = {info.name for info in pkgutil.iter_modules(traceanalyzer.__path__)}
    assert modules.isdisjoint(traceanalyzer.__all__)


def test_what_rules_are_written_with_is_in_one_place() -> None:
    home = importlib.import_module("traceanalyzer.rule")
    for name in home.__all__:
        assert getattr(home, name) is not None
    assert callable(home.rule)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = home.nothing
