"""Runs and their journals, durable."""
