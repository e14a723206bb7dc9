"""The store that several agents share: a log of facts, and each agent's copy of it in SQLite."""
