"""Commands on the registry's machine: run a server, and verify, seal, back up or repair its data.

- `commands`, `config`: the parsers; cheap to import.
- `options`: the options that commands share; cheap to import.
- The other modules carry out the commands. They import the whole registry, so each is imported
  only when its command runs (`registry.cli.server.loading.lazy_command`).
"""
