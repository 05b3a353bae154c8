"""Data that is moved."""
