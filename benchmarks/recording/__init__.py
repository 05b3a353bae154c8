"""Programs on real libraries that are run with and without `traceanalyzer record`, and what came of it."""
