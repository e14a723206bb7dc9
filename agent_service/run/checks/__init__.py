"""Checks of what a model replied: the quotes that prove its claims, and arguments against their schemas."""
