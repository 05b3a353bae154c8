"""Paths of the repository, its fixtures and the shared traces. Importable without pytest."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("TRACEANALYZER_TRACES", REPOSITORY.parent / "shared" / "traces"))
REPORTS = SHARED.parent / "reports"
"""Small traces rebuilt from public bug reports."""


def shared_names() -> list[str]:
    """Names of the shared traces, such as "pairs/addmm_copy.bad". Empty if they are absent."""
    files = SHARED.glob("*/*.json.gz")
    names = (f"{file.parent.name}/{file.name.removesuffix('.json.gz')}" for file in files)
    return sorted(name for name in names if not name.endswith(".table"))
