"""Pages of nouns (kinds of resources) as data: columns, forms, custom methods; and handlers.

`resources` derives pages from a resource's description; modules of `registry.console.pages` may
extend these pages. Nothing here depends on a particular noun.
"""
