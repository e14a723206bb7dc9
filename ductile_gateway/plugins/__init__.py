"""Plugin folders: discovered, and run by the gateway itself, without a Ductile (plugin protocol v2)."""
