"""Rules on memory."""
