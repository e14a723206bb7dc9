"""The plugins that ship with the project, run as Ductile runs them."""
