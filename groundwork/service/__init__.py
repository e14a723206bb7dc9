"""What every service needs around its work: settings, log, process locks, signals, exit codes."""
