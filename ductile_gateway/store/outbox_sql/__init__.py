"""The schema of the outbox, as numbered migrations."""
