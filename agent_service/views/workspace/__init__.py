"""A run's folder on disk: written from the journal, atomically, and never read back."""
