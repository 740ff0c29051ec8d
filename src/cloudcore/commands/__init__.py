"""What the commands of families are made of.

`nouns` describes commands: a `Noun`, its `Act`s, options and columns. `noun_parsers` adds their
parsers (`parser`), `options` reads their options and turns them into requests, and `invocation` is
one run of a command. `records`, `table`, `progress` and `prompts` print, and ask at the terminal.
What the product adds, such as its API client, is in `client`.
"""
