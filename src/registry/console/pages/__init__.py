"""The pages, one module a noun: each handler reads ``/v1`` and shows a template."""
