"""A SQLite file: group commit, migrations, and what can go wrong with it."""
