"""Unprotected twins of our services, built without a thought of attackers."""
