"""Make a process from the settings: stores, families, ports, planes, background work.

- `main`: opens and runs a process; `serve` and `dev` are its two editions.
- `families`: lists the platform's families.
- `family`, `runtime`, `background`, `needs`: the registry's own family.
- `ports`, `adapters`, `drivers`, `database_archive`: provide a family with what it needs from
  another family or from the settings.
- `planes`: dispatches requests.
- `fleet`: compares the settings of the nodes of an install.
- `metrics`: the gauges and event counters.
- `stores`: the stores that a process has open.
- `cross_origin`: guards against web pages of other origins.
- `unfinished_restoration`: refuses data whose restoration has not finished.

Only this package constructs implementations of stores, databases and drivers. Only `cli` and
`backup` import it.
"""
