"""Guarantees of groundwork, tested with real files, threads and processes."""
