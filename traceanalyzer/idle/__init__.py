"""Why nothing ran: gaps, their causes, and the accounting of every nanosecond."""
