"""The kernel and the families of the cloud; independent of the registry."""
