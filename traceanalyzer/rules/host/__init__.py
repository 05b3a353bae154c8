"""The CPU keeps the GPU waiting with work of its own."""
