"""What the commands of families are made of.

- `nouns`: describes commands: a `Noun`, its `Command`s, options and columns.
- `noun_parsers`, `parser`: add a parser for each command.
- `options`: adds the options of a command, and turns their values into requests.
- `invocation`: one run of a command.
- `records`, `table`, `progress`: print results.
- `prompts`: ask at the terminal.
- `client`: what the product provides: its API client and its sign-in.
"""
