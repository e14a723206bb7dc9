"""Tests of the views of a run: history, pages, folder, traces."""
