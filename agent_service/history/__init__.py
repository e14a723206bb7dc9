"""What happened to a run, folded from the facts of its entries, and in words. All that shows a run reads this."""
