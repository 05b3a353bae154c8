"""Facts that are no faults."""
