"""The use cases of the registry, called by both planes."""
