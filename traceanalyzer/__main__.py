"""`python -m traceanalyzer` is `traceanalyzer`."""

from traceanalyzer.cli.app import main

if __name__ == "__main__":
    main()
