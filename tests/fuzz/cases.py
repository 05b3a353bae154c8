"""The file of one case: some events of a real trace, changed, written and damaged."""

import gzip
import random
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import orjson

from tests.fuzz.changes import CHANGES, Event, with_others
from tests.fuzz.damages import DAMAGES, packed, written
from tests.support.paths import REPOSITORY, SHARED

_MAX_SOURCE_BYTES = 3 << 20
_MAX_EVENTS = 300
SEEDS_OF_ONE = 16  # consecutive cases that break the same trace, which is parsed once for them


@cache
def sources() -> list[Path]:
    """Traces to break: fixtures, and the shared ones where they are."""
    fixtures = (REPOSITORY / "fixtures").glob("*/*.json*")
    found = [*fixtures, *SHARED.glob("*/*.json.gz")]
    small = [path for path in found if path.stat().st_size < _MAX_SOURCE_BYTES]
    return sorted(path for path in small if not path.name.endswith((".meta.json", ".table.json.gz")))


@lru_cache(maxsize=2)  # parsed, a trace takes a hundred times its file
def content(path: Path) -> tuple[dict[str, Any], list[Event]]:
    """Header and events of a trace; none where it is broken already."""
    data = path.read_bytes()
    try:
        whole = orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (orjson.JSONDecodeError, EOFError):
        return {}, []
    if isinstance(whole, list):
        return {}, whole
    return {key: value for key, value in whole.items() if key != "traceEvents"}, whole.get("traceEvents", [])


def case(seed: int) -> bytes:
    """The file of one case; the same for the same seed."""
    return changed(seed, random.Random(seed // SEEDS_OF_ONE).choice(sources()))


def changed(seed: int, path: Path, *, whole: bool = False) -> bytes:
    """The file that the seed makes of some events of this trace, or of all."""
    rng = random.Random(seed)
    header, events = content(path)
    some = orjson.loads(orjson.dumps(events)) if whole else _some(rng, events)
    header = {key: value for key, value in header.items() if rng.random() < 0.9}
    for _ in range(rng.choice((0, 1, 1, 2, 5, 20))):
        rng.choice(CHANGES)(rng, header, some)
    data = written(rng, header, with_others(rng, some) if rng.random() < 0.1 else some)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 3))):
        data = rng.choice(DAMAGES)(rng, data)
    return packed(rng, data)


def _some(rng: random.Random, events: list[Event]) -> list[Event]:
    """A stretch of the events, copied, so that launches and their work stay together, and some from elsewhere."""
    size = rng.choice((0, 1, 3, 30, _MAX_EVENTS))
    start = rng.randrange(max(len(events) - size, 1))
    chosen = events[start : start + size] + rng.sample(events, min(size // 4, len(events)))
    return [orjson.loads(orjson.dumps(event)) for event in chosen]
