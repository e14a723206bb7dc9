"""The commands on what an agent keeps: verify, rebuild, export, back up, restore, migrate, prune, keys."""
