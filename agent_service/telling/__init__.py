"""What people see of a run: its workspace files, views and one-line summaries, all made from the journal alone."""
