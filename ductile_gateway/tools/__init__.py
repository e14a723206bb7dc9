"""Discovers tools, makes the catalog, and keeps it up to date."""
