"""Migrations of the record of deliveries."""
