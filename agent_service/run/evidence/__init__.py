"""Checks the quotes with which a model proves its claims."""
