"""What several gateways have in common: in a stream of facts, and of it a copy in SQLite for each."""
