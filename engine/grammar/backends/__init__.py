"""Grammar backends, one module each, imported late."""
