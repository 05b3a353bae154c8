"""Observations that are not problemss."""
