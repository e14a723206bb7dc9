"""The shell of the agent: turns, intake, recovery, over fakes of the ports, with a crash at every point."""
