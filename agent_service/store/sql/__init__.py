"""The agent's SQLite database: its schema (migrations/), its statements (queries.sql), and how it is opened."""
