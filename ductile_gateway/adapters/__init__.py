"""What the gateway touches of the world: one outside library or one kind of thing per file."""
