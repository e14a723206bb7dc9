"""Tests of the command `agentic`."""
