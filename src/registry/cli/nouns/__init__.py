"""Commands made from the description of a noun (`cloudcore.command_line.Noun`).

`commands` adds the parsers, `options` their options and requests; `invocation` is one run of a
command. Nothing here knows a particular noun.
"""
