"""What ops do: one table of their results, reads, writes and costs."""
