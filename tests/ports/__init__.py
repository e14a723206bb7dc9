"""One conformance suite per port, run against every adapter that fills it, and what is particular to one adapter."""
