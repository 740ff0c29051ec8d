"""Commands on the registry's machine: run a server, and verify, seal, back up or repair its data.

`commands` and `config` are the parsers, `options` the options that they share, and cheap to import.
The other modules carry the commands out; they import the whole registry, so
`registry.cli.server.loading.lazy_command` imports them when their command runs.
"""
