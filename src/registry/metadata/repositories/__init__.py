"""Rows of repositories: live and deleted, their folders, policies and details."""
