"""Computed once per trace, vectorised, read-only; rules name the ones that they need in their signature."""
