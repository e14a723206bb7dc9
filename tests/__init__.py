"""The tests, which read as the specification of the project."""
