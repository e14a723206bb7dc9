"""The command `ductile-gateway`. Only `serve` loads the service; other commands import what they need themselves."""
