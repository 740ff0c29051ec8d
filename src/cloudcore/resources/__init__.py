"""Resources of accounts, each described once; see docs/explanation/decisions.

A resource's table (`rows`), its bodies, its standard methods with their routes, and its commands
are all derived from its description (`resource`). `workflow` carries out long changes in steps;
`confirmations` asks people to confirm a resource. The family writes custom methods.
"""
