"""Principals, policies and decisions; pure code without database or HTTP."""
