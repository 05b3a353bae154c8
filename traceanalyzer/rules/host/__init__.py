"""Rules on CPU work that delays the GPU."""
