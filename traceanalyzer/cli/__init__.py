"""Commands, options, output, progress and exit codes; no analysis. What the user can mend is a TraceAnalyzerError."""
