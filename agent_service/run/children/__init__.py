"""Child runs: the executor of the tool `agent`. A request wakes a run; its end is the result."""
