"""The ``entrepot`` command, and the two programs that container clients run for passwords.

`main` makes the parser from the commands of the families, with the tools of `cloudcore.commands`.
`commands` call a registry by ``/v1``, through `client`; `server` has the commands for the
registry's own machine. `cloudcore.command_failures` has the errors and exit statuses.

A command that calls a registry imports neither server nor database: the modules of `server` are
imported when their command runs.
"""
