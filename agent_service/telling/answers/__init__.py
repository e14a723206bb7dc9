"""What the API shows of runs, steps, model calls, entries and dead letters."""
