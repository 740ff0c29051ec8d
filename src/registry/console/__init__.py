"""The console: pages in the browser, and nothing that ``/v1`` does not let their reader do."""
