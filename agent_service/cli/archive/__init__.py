"""The commands on what an agent keeps: verify, export, back up, restore, prune, keys."""
