"""Turns, intake, children, limits and citations, over fakes of the ports."""
