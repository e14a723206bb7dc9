"""The tools on offer: found, drawn up as a catalog, kept up to date."""
