"""One world for both services: virtual time, a seeded scheduler, a bus, a Ductile, models and people that misbehave."""
