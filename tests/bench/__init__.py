"""Measurements of the program: size, Python calls per step, throughput."""
