"""Unprotected twins: the same doors as somebody builds them who thinks of no attacker."""
