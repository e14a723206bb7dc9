"""The agent's API over HTTP and over the bus, on a real store."""
