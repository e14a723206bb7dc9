"""The contract of Agentic Loop: events, keys and subjects. Pure data: no I/O, and nothing of the services."""
