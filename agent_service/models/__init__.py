"""Models: providers, prompts, replies, prices, and the remedies of failed calls."""
