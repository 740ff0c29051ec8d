"""The ``entrepot`` command, and the two programs that container clients run for passwords.

- `main`: parses the command line and runs the command (`cloudcore.commands`).
- `commands`: commands that call ``/v1`` of a registry, through `client`.
- `server`: commands for the registry's own machine.
- `credential_helper`, `credential_provider`: the programs that container clients run.

`cloudcore.command_failures` has the errors and exit statuses. A command that calls a registry
imports neither server nor database: a module of `server` is imported when its command runs.
"""
