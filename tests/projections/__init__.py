"""Tests of what people see of a run: its trail, its folder, its views."""
