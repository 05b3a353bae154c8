"""The version of the tool and of what it writes, alone so that reading them imports nothing."""

__version__ = "0.2.0"

SCHEMA_VERSION = 2
"""Of all data that is written. Raised when a field goes away or changes its meaning; new fields leave it as it is."""
