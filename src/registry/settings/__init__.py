"""The settings of a server: plain values, read and checked once at the start.

- `fields`: the settings and their defaults.
- `settings`: their checks, and the values, hosts and URLs derived from them.
- `groups`, `certificates`, `email`, `node`, `store`: groups of settings.
- `texts`: parses single values.
- `reading`: reads settings from the environment and from a file.
- ``catalog.json``: the default regions and prices.

This package imports nothing else of the registry, and only parsers and value types of `cloudcore`.
"""
