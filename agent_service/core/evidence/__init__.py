"""What shows that a done-item is met: evidence, and quotes that stand in it."""
