"""The version of the tool and of what it writes, alone so that reading them imports nothing."""

__version__ = "0.3.0"

DISTRIBUTION = "torch-traceanalyzer"  # on a package index; the import and the command are called `traceanalyzer`

SCHEMA_VERSION = 2
"""Of all data that is written. Raised when a field goes away or changes its meaning; new fields leave it as it is."""


def install_command(extra: str) -> str:
    """The command that installs the distribution with one of its extras."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
