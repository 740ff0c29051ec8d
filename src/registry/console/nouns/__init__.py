"""Pages of nouns (kinds of resources) as data: columns, forms, custom methods; and handlers.

`resources` derives them from a resource's description; a module of `registry.console.pages` may
extend them. Nothing here depends on a particular noun.
"""
