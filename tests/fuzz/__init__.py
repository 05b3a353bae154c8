"""Traces broken at random: see __main__.py."""
