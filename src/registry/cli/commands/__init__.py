"""Commands that call a registry by ``/v1``: one module for each noun of the registry.

A module has ``COMMANDS``, or ``add_parsers`` that adds them. The order of the help is that of
`registry.composition.family`. Nouns of other families have their commands in the family's folder.
"""
