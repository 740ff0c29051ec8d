"""The kernel and the families of the cloud; it knows nothing of the registry."""
