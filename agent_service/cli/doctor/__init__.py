"""`agentic doctor`: is everything there that the agent needs? One line for each thing, with what to do about it."""
