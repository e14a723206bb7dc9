"""What fills the ports: one outside library per file. No adapter imports another; `app` puts them together."""
