"""What the commands of families are made of.

`nouns` are the descriptions: a `Noun`, its `Act`s, options and columns. `noun_parsers` adds their
parsers (`parser`), `options` reads their options and makes requests of them, and `invocation` is
one run of a command. `records`, `table`, `progress` and `prompts` print, and ask at the terminal.
What the product adds, such as the client that calls it, is in `client`.
"""
