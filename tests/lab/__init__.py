"""Tests of the lab: tasks that public benchmarks ship, played on a bus by scripts."""
