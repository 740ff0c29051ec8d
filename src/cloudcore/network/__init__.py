"""Networks of accounts: VPCs, their parts, and the flows between them and the internet.

`resources`: all kinds of resources.
`vpcs`, `subnets`, `gateways`, `route_tables`, `security_groups`, `network_interfaces`: the rules
    and HTTP routes of each kind. Instances and load balancers get their addresses from
    `network_interfaces`, through a port.
`planning`: makes the plan of a VPC from its rows.
`workflow`: makes a driver (`drivers`) apply the plan, as the watch of each machine does, too.
`reachability`: computes from the same plan which flows are allowed.
"""
