"""The tests: they read as the specification of the project."""
