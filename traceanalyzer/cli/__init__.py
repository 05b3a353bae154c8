"""Commands, options, output, progress and exit codes; no analysis."""
