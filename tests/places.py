"""Where the repository and the shared traces are; imported where pytest is not installed, too."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("TRACEANALYZER_TRACES", REPOSITORY.parent / "shared" / "traces"))
