"""Simulation of both services: virtual time, a seeded scheduler, and a faulty bus, Ductile, models and people."""
