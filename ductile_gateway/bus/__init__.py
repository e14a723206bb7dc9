"""The gateway on NATS."""
