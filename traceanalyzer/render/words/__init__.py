"""What all renderers say and show alike: escaping, tables of pipes, amounts."""
