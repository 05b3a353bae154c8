"""Memory that is allocated, kept and given back."""
