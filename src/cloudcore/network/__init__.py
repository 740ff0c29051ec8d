"""Networks of accounts: VPCs, what is in them, and what may pass between them and the internet.

`resources` describes all kinds. Each has its routes and rules in the file of its name (`vpcs`,
`subnets`, `gateways`, `route_tables`, `security_groups`, `network_interfaces`). `planning` makes
the plan of a VPC of its rows; `workflow` and the watch of a machine have a driver (`drivers`) carry
it out. `reachability` computes from the same plan who can reach whom. Instances and load balancers
get their addresses from `network_interfaces`, through a port.
"""
