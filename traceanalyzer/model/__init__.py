"""Words that everything shares: units, intervals, errors, the schema, traces, findings and the report."""
