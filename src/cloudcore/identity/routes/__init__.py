"""The routes of identity under ``/v1``."""
