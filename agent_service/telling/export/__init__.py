"""Single runs in a file, which proves itself wherever it is read: what it is made of, and how it is judged."""
