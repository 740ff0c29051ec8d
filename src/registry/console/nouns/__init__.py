"""Pages made from the description of a noun: columns, forms, actions as data, and the handlers.

`resources` derives them from a described resource; a page of `registry.console.pages` may add to
them. Nothing here knows a particular noun.
"""
