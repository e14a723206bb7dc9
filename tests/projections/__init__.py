"""Tests of what people see of a run: its pages, its folder, its views."""
