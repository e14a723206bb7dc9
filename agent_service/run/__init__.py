"""What one event does to a run: it is taken in, decided, committed, and its effects are carried out."""
