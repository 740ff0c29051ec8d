"""The ``entrepot`` command, one module a subcommand."""
