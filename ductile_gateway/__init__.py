"""Carries tool requests to plugins and a Ductile, and results, webhooks and wakes back onto the bus."""
