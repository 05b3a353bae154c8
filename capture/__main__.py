"""Entry point of `python -m capture`."""

import sys

from capture.cli import main

if __name__ == "__main__":
    sys.exit(main())
