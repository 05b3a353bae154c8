"""Kernels that take longer than they need to."""
