"""The core, as a specification: what a run does when something happens."""
