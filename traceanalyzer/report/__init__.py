"""The one place that knows every stage: traces in, Report out."""
