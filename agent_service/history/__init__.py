"""The history of a run, folded from the facts of its entries, and its wording. Every view of a run reads it."""
