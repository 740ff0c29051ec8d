"""Quotas: how much accounts may have of each thing, and what an operator has set instead."""
