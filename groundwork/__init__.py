"""Technical ground that both services stand on: one outside library per file, nothing of ours imported."""
