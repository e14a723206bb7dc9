"""HTTP servers: what they bound before any route is reached."""
