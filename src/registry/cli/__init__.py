"""The ``entrepot`` command, and the two programs that container clients run for passwords.

`main` makes the parser from the command groups of the families. `commands` call a registry by
``/v1``, through `client`; `server` are the commands on the registry's machine. `nouns` makes the
commands of the nouns that families describe; `output` prints, and asks at the terminal.
`cloudcore.command_failures` has the errors and exit statuses.

A command that calls a registry imports neither server nor database: the modules of `server` are
imported when their command runs.
"""
