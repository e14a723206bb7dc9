"""Every rule about runs, and nothing else: values in, values out. No clock, no I/O, no randomness, no logging.

Read `waiting` and `events` first, then `decide` with its table.
"""
