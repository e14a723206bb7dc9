"""Shell of a service: settings, log, process locks, signals, exit codes, start-up."""
