"""The same gate inside other engines' decoding loops. Each module imports the engine that it adapts to."""
