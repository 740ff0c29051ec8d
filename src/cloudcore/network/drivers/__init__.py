"""Make the network of VPCs on a machine, or only write its rules.

`nftables` makes each VPC a network namespace with links, routes and rules, and needs root; `render`
writes the rules to files. The rules are rendered by `rules`, from a plan alone. Here are all calls
of `nft`, netlink and ``setns``; nothing here reads the database.
"""
