"""Metrics of the agent: few series, none labelled by a run, a wake or a text. See docs/OPERATIONS.md."""
