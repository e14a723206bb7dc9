"""What callers may ask of the agent, over HTTP and as a NATS micro service."""
