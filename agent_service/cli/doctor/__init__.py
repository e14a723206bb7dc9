"""`agentic doctor` checks everything that the agent needs, and names a remedy for each problem."""
