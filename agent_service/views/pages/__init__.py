"""The pages of a run's folder that people read, each made from the journal."""
