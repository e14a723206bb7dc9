"""Adds what agents need to the configuration of a Ductile that is there already, and takes it out again."""
