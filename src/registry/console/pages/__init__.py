"""The pages, by section of the console; each handler reads ``/v1`` and renders a template."""
