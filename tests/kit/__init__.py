"""What tests of every folder share: waiting for a fact, the bus, fakes of the ports, runs, logs."""
