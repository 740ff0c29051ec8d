"""Load balancers: one address before the instances of a VPC, served by real proxies."""
