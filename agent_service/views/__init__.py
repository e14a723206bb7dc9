"""Views of runs for API, pages and traces: templates over history and state."""
