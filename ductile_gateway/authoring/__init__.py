"""For whoever writes a tool: a first plugin, a call by hand, and what could be better about one. Services need none."""
