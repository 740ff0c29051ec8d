"""Pages of kinds of resources, as data: names, columns, forms and custom methods, and the handlers.

`resources` derives them from a described resource; a page of `registry.console.pages` may add to
them. Nothing here knows a particular noun.
"""
