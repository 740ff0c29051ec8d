"""The settings of a server: plain values, read and checked once, before anything is made.

`fields` are the settings and their defaults, `settings` the checks, and the values, hosts and URLs
that follow from them. Groups of settings have modules of their own.
`texts` parses single values; `reading` takes the values from the environment and a file.
``catalog.json`` has the default regions and prices.

Settings import nothing of the registry, and of `cloudcore` only parsers and value types.
"""
