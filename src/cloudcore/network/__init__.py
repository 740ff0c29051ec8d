"""Networks of accounts: VPCs, their parts, and the flows between them and the internet.

`resources` describes all kinds of resources. Each kind has its routes and rules in a module with
its name (`vpcs`, `subnets`, `gateways`, `route_tables`, `security_groups`, `network_interfaces`).
`planning` makes the plan of a VPC from its rows; `workflow`, and the watch of a machine, have a
driver (`drivers`) carry it out. `reachability` computes from the same plan which flows are allowed.
Instances and load balancers get their addresses from `network_interfaces`, through a port.
"""
