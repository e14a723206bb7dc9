"""The audit files of runs: written beside the turns, by a process of their own."""
