"""How many examples hypothesis tries: few in a normal run, more where HYPOTHESIS_PROFILE asks for them.

A normal run tries the same examples each time, so that it fails for what was changed; the other profiles try new ones.

HYPOTHESIS_PROFILE=thorough pytest tests/timeline
"""

import os

from hypothesis import HealthCheck, settings

PROFILES = {"quick": 0.2, "full": 1.0, "thorough": 15.0}
"""Profile -> times the number that a test names (100 where it names none)."""

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
_LEAST = 20
_SLOW = [HealthCheck.too_slow]


def examples(count: int = 100) -> settings:
    """Settings for a property: so many examples in the profile `full`, without a deadline."""
    scaled = max(round(count * PROFILES[PROFILE]), min(count, _LEAST))
    return settings(max_examples=scaled, deadline=None, derandomize=PROFILE == "quick", suppress_health_check=_SLOW)


def load_profile() -> None:
    """Make this the default of all properties of the process."""
    settings.register_profile(PROFILE, examples())
    settings.load_profile(PROFILE)
