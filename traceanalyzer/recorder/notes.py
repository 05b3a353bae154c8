"""What a recorded process tells `traceanalyzer record`: a file of JSON lines per process."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

STARTED = "started"  # torch is imported, and the hooks are in
STEPPING = "stepping"  # a step has ended
WRITTEN = "written"
NOTHING = "nothing"  # recorded, with the reason
PARTLY = "partly"  # recorded, with what is missing


NO_STEP = (
    "no step was found: no optimizer stepped, no CUDA graph was replayed, and no module with parameters ran; "
    "name the function that is one step: --every-call-of pkg.module:function"
)


class Notes:
    """Attributes: folder: of the notes; None where nobody reads them, and standard error is told instead."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder

    def tell(self, event: str, text: str, **more: Any) -> None:
        """One event of this process."""
        if self.folder is None:
            if event not in (STARTED, STEPPING):
                print(f"traceanalyzer record: {text}", file=sys.stderr, flush=True)
            return
        known = {"event": event, "text": text, "rank": os.environ.get("RANK"), "at": time.time()}
        line = json.dumps({**known, **more})
        try:
            with open(os.path.join(self.folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as stream:
                stream.write(line + "\n")
        except OSError:  # the command was stopped, and its folder is gone
            pass

    def beside(self, path: str) -> str:
        """The folder for files that are not finished: it vanishes with the command, whatever ends the program."""
        return self.folder or os.path.dirname(os.path.abspath(path))

    def free_path(self, path: str) -> str:
        """The path, or one with `-2`, `-3`, ... where another process of this run writes it."""
        if self.folder is None:
            return path
        ending = ending_of(path)
        wanted, number = path, 1
        while not self._claimed(wanted):
            number += 1
            wanted = f"{path.removesuffix(ending)}-{number}{ending}"
        return wanted

    def _claimed(self, path: str) -> bool:
        claim = os.path.join(self.folder or "", f"{os.path.basename(path)}.claim")
        try:
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def ending_of(path: str) -> str:
    """`.json.gz`, `.json`, or nothing."""
    return next((end for end in (".json.gz", ".json") if path.endswith(end)), "")
