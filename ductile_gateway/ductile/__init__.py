"""Calls carried out by a Ductile: its API, its catalog, its jobs."""
