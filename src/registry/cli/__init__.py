"""The ``entrepot`` command, and the two programs that container clients run for passwords.

- `main`: makes the parser from the commands of the families, with `cloudcore.commands`.
- `commands`: commands that call a registry by ``/v1``, through `client`.
- `server`: commands for the registry's own machine.
- `credential_helper`, `credential_provider`: the two programs.

`cloudcore.command_failures` has the errors and exit statuses. A command that calls a registry
imports neither server nor database: a module of `server` is imported when its command runs.
"""
