"""Tool requests: their attempts, and what their results mean."""
