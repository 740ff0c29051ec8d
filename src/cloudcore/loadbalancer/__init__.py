"""Load balancers: one address in front of the instances of a VPC, served by real proxies.

`balancers`, `bodies`, `routes`: ``/v1/load-balancers``.
`planning`: makes the plan for the proxies from the rows (`driver` has its types).
`workflow`: starts, changes and stops the proxies.
`watch`: observes them.
`haproxy`, `embedded`: the two drivers; both use a folder for each replica (`replicas`).
`proxy`: the embedded proxy, a separate program that imports only the standard library.
"""
