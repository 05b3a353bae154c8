"""What happened, without opinion: nesting, device work, steps, busy time, synchronisation, the profiler's rows."""
