"""Instances that run images of the install, and the pools that keep them running."""
