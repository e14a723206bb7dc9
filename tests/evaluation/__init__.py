"""Tests of the evaluation: its scenarios hold, and it finds what is wrong."""
