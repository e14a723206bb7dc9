"""The operations of the agent, over HTTP and as a NATS micro service."""
