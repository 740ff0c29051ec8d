"""Requests to hosts that users name: every address is vetted, and the vetted one is dialled."""
