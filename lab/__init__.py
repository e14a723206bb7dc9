"""Public benchmarks, run against the unchanged agent; see README.md. Not part of the wheel."""
