"""Resources of accounts, each described once; see docs/explanation/decisions.

From a `resource` follow its table (`rows`), its bodies, its standard methods with their routes, and
its commands. `workflow` carries out long changes in steps. Custom methods are written by the
family.
"""
