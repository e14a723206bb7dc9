"""For authors of tools: a first plugin, a call by hand, and what could be better about one. Services need none."""
