"""The command `ductile-gateway`. Only `serve` loads the service; each other command loads what it needs itself."""
