"""The GPU has nothing to do."""
