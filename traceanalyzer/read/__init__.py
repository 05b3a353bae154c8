"""From a file's bytes to frames: sources -> chunks -> events -> frames -> load."""
