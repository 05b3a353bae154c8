"""What a traced program would take without the profiler, and what a fix would save of that."""
