"""The agent on NATS: what it consumes and publishes, the tools on offer, dead letters, its streams."""
