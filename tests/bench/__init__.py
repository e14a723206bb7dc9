"""Programs that measure this one: its size, the calls that a step makes, and what it carries."""
