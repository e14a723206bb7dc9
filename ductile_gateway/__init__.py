"""The hands: carries tool requests into Ductile, and results, webhooks and wakes back onto the bus."""
