"""The commands on runs, by the API of an agent, and how runs look in a terminal."""
