"""Observations that are not problems."""
