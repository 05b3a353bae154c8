"""Report in, bytes out."""
