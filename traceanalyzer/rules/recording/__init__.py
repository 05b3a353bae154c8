"""Rules on the recording: its cost and its gaps."""
