"""The folders of runs on disk: rendered from the journal, atomically, and never read back as data."""
