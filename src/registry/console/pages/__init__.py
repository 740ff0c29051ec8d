"""The pages, one module per noun: each handler reads ``/v1`` and renders a template."""
