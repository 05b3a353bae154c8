"""Rules on an idle GPU."""
