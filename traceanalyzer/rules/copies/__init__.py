"""Rules on copies."""
