"""Resources of accounts, each described once; see docs/decisions.

From a `resource` follow its table (`rows`), its bodies, its standard methods with their routes, and
its commands. `workflow` carries out in steps what takes long. Custom methods are a family's own.
"""
