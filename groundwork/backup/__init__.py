"""Backup files: contents kept once by their hash, and what was backed up of them and when."""
