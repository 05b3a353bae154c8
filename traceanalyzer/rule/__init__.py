"""What rules are made of: decorator, registry, limits, claims, grouping, messages, places."""
