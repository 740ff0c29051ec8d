"""Make a process from the settings: stores, families, ports, planes, background work.

`main` opens and runs a process, `serve` and `dev` are its two editions. `families` lists the
families; `family`, `runtime`, `background` and `needs` are the registry's own. `ports` provides
what one family needs from another or from the settings, with `adapters`, `drivers` and
`database_archive`. `planes` dispatches requests, `fleet` compares the nodes of an install,
`metrics` has the gauges and event counters.

Only this package constructs implementations of stores, databases and drivers. Only `cli` and
`backup` import it.
"""
