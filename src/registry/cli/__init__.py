"""The ``entrepot`` command, and the two programs that container clients run for passwords.

`main` makes the parser from the command groups of the families, of what `cloudcore.commands` gives.
`commands` call a registry by ``/v1``, through `client`; `server` are the commands on the registry's
machine. `cloudcore.command_failures` has the errors and exit statuses.

A command that calls a registry imports neither server nor database: the modules of `server` are
imported when their command runs.
"""
