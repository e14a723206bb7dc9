"""Messages of a durable consumer: taken, kept in hand, settled."""
