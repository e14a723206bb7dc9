"""Asking the model, and taking up what it decides."""
