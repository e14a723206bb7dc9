"""Development stack, demo, examples and evaluation; nothing that production uses."""
