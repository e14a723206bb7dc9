"""Tests of the core, as a specification of what a run does."""
