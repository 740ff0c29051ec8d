"""The use cases of the registry; both planes call these, and only these."""
