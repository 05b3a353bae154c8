"""What patterns say of texts, remembered: rules ask the same names again and again, as do the ranks of a job."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_MOST_PATTERNS = 1_024  # rules and indexes have about 300
_MOST_TEXTS = 20_000  # of each pattern, after which all are forgotten; a trace has some hundred names


class _Answers(dict[str, bool]):
    """Text -> whether it has the pattern."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        super().__init__()
        self._search = pattern.search

    def __missing__(self, text: str) -> bool:
        if len(self) >= _MOST_TEXTS:
            self.clear()
        answer = self[text] = self._search(text) is not None
        return answer


_answers = lru_cache(_MOST_PATTERNS)(_Answers)
compiled = lru_cache(_MOST_PATTERNS)(re.compile)
"""As `re.compile`, which forgets after 512 patterns: each of a job's ranks would compile them again."""


def remembered(wanted: Callable[[str], object]) -> Callable[[str], object]:
    """The same predicate on texts; the `search` of a pattern looks at each text once."""
    pattern = getattr(wanted, "__self__", None)
    if isinstance(pattern, re.Pattern) and wanted == pattern.search:
        return _answers(pattern).__getitem__
    return wanted
