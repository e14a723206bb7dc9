"""Executors of several kinds on one bus, beside each other and the gateway."""
