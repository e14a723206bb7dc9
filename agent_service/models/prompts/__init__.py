"""Prompts, and the validation of replies. Provider-neutral, and pure but for the template files."""
