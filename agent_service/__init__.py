"""The loop: decides what happens next, remembers it, says it on the bus."""
