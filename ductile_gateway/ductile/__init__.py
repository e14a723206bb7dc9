"""Calls in a Ductile: its API, its catalog, its jobs."""
