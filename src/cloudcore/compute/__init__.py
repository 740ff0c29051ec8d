"""Instances that run images, and the pools that keep them running."""
