"""Traces of runs, derived from their journals."""
