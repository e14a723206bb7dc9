"""What people see of a run: its workspace files, views and one-line summaries, all made from the journal alone.

Nothing here decides anything about a run, and nothing is read back: delete it and it can be made again, byte by byte.
"""
