"""Runs that move between the store of one agent and the one that several share, and back."""
