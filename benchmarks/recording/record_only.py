"""`record` without its diagnosis, where the analyzer cannot be installed: record_only.py OPTIONS COMMAND.

Options as JSON: record_only.py '{"path": "trace.json.gz"}' python train.py
"""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from traceanalyzer.recorder.launch import run

if __name__ == "__main__":
    outcome = run(sys.argv[2:], json.loads(sys.argv[1]), lambda text: print(text, file=sys.stderr, flush=True))
    if outcome.problem:
        print(f"nothing is recorded: {outcome.problem}", file=sys.stderr)
    sys.exit(outcome.exit_code)
