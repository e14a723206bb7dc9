"""The schema of the receipts' file, as numbered migrations."""
