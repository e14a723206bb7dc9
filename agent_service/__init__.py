"""Agent loop: decides the next action of a run, stores it, and publishes it on the bus."""
