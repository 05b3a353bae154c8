"""The recorded fixtures, and which rules have none."""

from pathlib import Path

from tests.support.paths import REPOSITORY
from tests.support.trace_selection import ALL
from traceanalyzer.rule.registry import all_rules

FIXTURES = REPOSITORY / "fixtures"
TRACES = sorted(p for p in FIXTURES.glob("*/*.json.gz") if p.parent.name != "broken" and ".table" not in p.name)
FOLDERS = sorted({path.parent for path in TRACES})
SHOWING = [path for path in TRACES if ALL or path.name != "good.json.gz"]
"""Those with findings that cost something: what holds of them holds of the repaired ones, whose findings are few."""
PROGRAMS = sorted((REPOSITORY / "tests/programs").glob("*.json.gz"))
"""The first steps of slow programs that others wrote: their numbers are kept, and no rule has them as its example."""
HEALTHY = [path for path in TRACES if path.parent.name == "healthy"]

# Rules that no pair of recordings can show; the file says why, and what tests them instead.
UNRECORDED = {path.parent.name for path in FIXTURES.glob("*/unrecorded.txt")}
RECORDED = [rule.slug for rule in all_rules() if rule.slug not in UNRECORDED]


def name_of(path: Path) -> str:
    """The fixture's folder and name, as "scheduler-gap/bad"."""
    return f"{path.parent.name}/{path.name.removesuffix('.json.gz')}"
