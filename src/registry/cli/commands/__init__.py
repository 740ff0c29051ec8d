"""Commands that call a registry by ``/v1``: a module for each noun of the registry.

A module describes its commands in ``COMMANDS``. Those with other parsers, such as ``login``, and
nouns that also have commands on the registry's machine, add them in ``add_parsers``. The order of
the help is that of `registry.composition.family`. Nouns of other families have their commands in
the family's folder.
"""
