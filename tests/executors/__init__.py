"""Several kinds of executors on one bus, beside the gateway."""
