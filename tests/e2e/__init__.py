"""Both services and a NATS server as processes with real files, and kills of them."""
