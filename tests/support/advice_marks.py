"""Marks in advice, which `features.toml` must know."""

import re

from traceanalyzer.rule.advice import FEATURES

_MARK = re.compile(r"\{(?:(?:torch|F|nn)\.[\w.]+|\w+=\w+(?: to \w+)?)\}")


def unknown_marks(advice: str) -> list[str]:
    """What an advice marks as torch's and nothing is known of, with its braces."""
    return [mark for mark in _MARK.findall(advice) if mark[1:-1] not in FEATURES]
