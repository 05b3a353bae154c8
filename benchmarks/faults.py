"""What is wrong in each measured pair, by construction."""

from __future__ import annotations

import json
from pathlib import Path

# Which rules may name the fault of a pair: what is wrong in it is known by construction.
FAULTS: dict[str, tuple[str, ...]] = {
    pair: tuple(rules)
    for pair, rules in json.loads((Path(__file__).parent / "truth" / "faults.json").read_text("utf-8")).items()
}
