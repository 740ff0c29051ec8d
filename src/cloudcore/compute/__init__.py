"""Instances that run images of the registry, and the pools that keep them running."""
