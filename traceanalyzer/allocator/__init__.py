"""Memory as the allocator's instants show it."""
