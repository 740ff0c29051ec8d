"""Drivers: `nftables` makes the network of VPCs on a machine, `render` only writes its rules.

`nftables` makes each VPC a network namespace with links, routes and rules, and needs root; `render`
writes the rules to files. `rules` renders them from a plan alone. All uses of `nft`, netlink and
``setns`` are in this package, which never reads the database.
"""
