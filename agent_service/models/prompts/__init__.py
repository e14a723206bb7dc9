"""What a model is told, and how what it says is read. Provider-neutral and pure but for the template files."""
