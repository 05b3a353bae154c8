"""Bytes -> batches of raw events: sources, the text around and between the events, damage."""
