"""Patterns that the CPU lane shows: what the host was doing when it should have launched."""
