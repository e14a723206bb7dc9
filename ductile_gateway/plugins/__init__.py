"""Plugin folders run by the gateway itself, without a Ductile (plugin protocol v2)."""
