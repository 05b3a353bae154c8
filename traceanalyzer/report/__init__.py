"""The one place that knows every stage: traces in, Report out. What a trace does not carry is `Unavailable`."""
