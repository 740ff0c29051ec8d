"""Load balancers: one address before the instances of a VPC, served by real proxies.

`balancers` and `routes` are ``/v1/load-balancers``. `planning` makes of the rows the plan that the
proxies carry out, `workflow` starts and ends them, and `watch` looks at them. There are two
drivers, `haproxy` and `embedded`; both keep a folder for each replica (`replicas`).

`proxy` is a program of its own, and `proxy_heads`, `proxy_relay` and `proxy_targets` are parts of
it: they import the standard library alone, since a machine runs many of them.
"""
