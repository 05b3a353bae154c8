"""What is drawn beside a trace in a viewer: findings, idle time, steps, counters, and who waited for what."""
