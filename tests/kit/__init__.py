"""Shared test tools: waiting, the bus, fakes of the ports, builders of runs, logs."""
