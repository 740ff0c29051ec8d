"""The console: pages in the browser, a client of ``/v1`` with the rights of their reader."""
