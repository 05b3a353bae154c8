"""Ranks talk to each other."""
