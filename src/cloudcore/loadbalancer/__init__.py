"""Load balancers: one address in front of the instances of a VPC, served by real proxies.

`balancers` and `routes` are ``/v1/load-balancers``. `planning` turns the rows into a plan for the
proxies, `workflow` starts and stops them, and `watch` observes them. There are two drivers,
`haproxy` and `embedded`; both use a folder for each replica (`replicas`).

`proxy` is a separate program, which imports only the standard library.
"""
