"""Tests of the command `agentic`, run as its users run it."""
