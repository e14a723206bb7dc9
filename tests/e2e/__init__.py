"""Both services and a NATS server as processes, real files, and things that are killed."""
