"""Make a process from the settings: stores, families, ports, planes, background work.

`main` opens and runs a process, `serve` and `dev` are its two editions. `families` lists the
families; `family`, `runtime`, `background` and `needs` are the registry's own. `ports` fills what
one family asks of another or of the settings, with `adapters`, `drivers` and
`database_archive`. `planes` dispatches requests, `fleet` compares the nodes of an install,
`metrics` are the gauges and counted events.

Only this room constructs implementations of stores, databases and drivers. Only `cli` and `backup`
import it.
"""
