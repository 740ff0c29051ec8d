"""Drivers of networks, which never read the database.

`nftables`: makes each VPC a network namespace with links, routes and rules; needs root.
`render`: only writes the rules to files.
`rules`: renders the rules from a plan alone.

All uses of `nft`, netlink and ``setns`` are in this package.
"""
