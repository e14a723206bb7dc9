"""Runs as they are shown: for the API, pages, logs and the terminal. Templates over history and state."""
