"""The settings of a server: plain values, read and checked once at the start.

`fields` has the settings and their defaults; `settings` has the checks, and the values, hosts and
URLs derived from them. Groups of settings have modules of their own. `texts` parses single values;
`reading` takes the values from the environment and a file. ``catalog.json`` has the default regions
and prices.

Settings import nothing of the registry, and of `cloudcore` only parsers and value types.
"""
