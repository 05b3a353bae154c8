"""Worth knowing, and nobody's fault."""
