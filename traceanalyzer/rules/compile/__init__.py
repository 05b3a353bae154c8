"""What torch.compile does, and what it costs."""
