"""Patterns that the GPU lane shows: gaps between work, needless work, uneven work."""
