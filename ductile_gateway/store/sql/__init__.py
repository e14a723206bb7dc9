"""The schema of the ledger's file, as numbered migrations."""
