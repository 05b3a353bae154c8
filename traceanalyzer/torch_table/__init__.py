"""torch's key_averages from a file: everything that imitates the profiler, and nothing else."""
