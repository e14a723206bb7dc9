"""Who owns a role on the bus, alone or as one of several."""
