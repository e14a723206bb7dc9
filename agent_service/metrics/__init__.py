"""What the agent counts and measures, in few series: none is named by a run, a wake or a text. See docs/METRICS.md."""
