"""The gateway's durable memory, in SQLite."""
