"""What a recorded process reports to `traceanalyzer record`: a file of JSON lines per process."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

STARTED = "started"  # torch is imported, and the hooks are in
STEPPING = "stepping"  # a step has ended
READY = "ready"  # a recording lies in the folder
WRITTEN = "written"
NOTHING = "nothing"  # recorded, with the reason
PARTLY = "partly"  # recorded, with what is missing
NOTED = "noted"  # anything else that the user should know
RIVAL = "rival"  # a trace that the program's own profiler wrote

NO_STEP = (
    "no step was found: no optimizer stepped, no CUDA graph was replayed, no backward pass ran, and no module with "
    "parameters was called; name the function that is one step: --every-call-of pkg.module:function"
)
_SILENT = (STARTED, STEPPING, RIVAL)


class Notes:
    """Attributes: folder: of the notes; None where nobody reads them, and standard error is written to instead."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder

    def tell(self, event: str, text: str, **more: Any) -> None:
        if self.folder is None:
            if event not in _SILENT:
                print(f"traceanalyzer record: {text}", file=sys.stderr, flush=True)
            return
        known = {"event": event, "text": text, "rank": os.environ.get("RANK"), "at": time.time()}
        line = json.dumps({**known, **more})
        try:
            with open(os.path.join(self.folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as stream:
                stream.write(line + "\n")
        except OSError:  # the command was stopped, and its folder is gone
            pass

    @property
    def abandoned(self) -> bool:
        """Whether the command has ended: nothing is to be written any more."""
        return self.folder is not None and not os.path.isdir(self.folder)

    def workspace(self, path: str) -> str:
        """The folder for files that are not finished: it vanishes with the command, whatever ends the program."""
        if self.folder is not None:
            return self.folder
        folder = os.path.dirname(os.path.abspath(path))
        os.makedirs(folder, exist_ok=True)
        return folder
