"""The console: web pages, made by a client of ``/v1`` with the rights of the signed-in person."""
