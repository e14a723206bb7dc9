"""Tests of the evaluation: that its scenarios hold, and that it finds what is wrong."""
