"""Facts as rows and as JSON documents have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from traceanalyzer.report.facts import Fact

if TYPE_CHECKING:
    import pandas as pd


def facts_fields(facts: Sequence[Fact]) -> Mapping[str, Any]:
    """Fields of the JSON document."""
    return {
        "facts": [
            {
                "name": fact.name,
                "text": fact.text,
                "values": dict(fact.values),
                "event_ids": list(fact.event_ids),
            }
            for fact in facts
        ]
    }


def facts_frame(facts: Sequence[Fact]) -> pd.DataFrame:
    """One row per fact: name, text, and as JSON text its values and event ids."""
    import pandas as pd

    rows = [(fact.name, fact.text, _json(dict(fact.values)), _json(list(fact.event_ids))) for fact in facts]
    return pd.DataFrame(rows, columns=["name", "text", "values", "event_ids"]).astype("str")


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()
