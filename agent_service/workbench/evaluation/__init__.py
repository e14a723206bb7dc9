"""Runs scenarios against a model in one process, without a bus and without real time."""
