"""Billing: payment methods of organizations, and the invoices of each month."""
