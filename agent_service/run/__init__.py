"""What one event does to a run: it is taken in, decided, committed, and what it asks for is carried out."""
