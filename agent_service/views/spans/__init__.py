"""The trace of a run, told from its journal."""
