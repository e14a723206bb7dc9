"""Events from outside: webhooks and relayed events, checked and put on the bus."""
