"""Webhooks and relayed events, incoming and outgoing."""
