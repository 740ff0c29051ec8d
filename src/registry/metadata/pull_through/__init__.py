"""Rows of the pull-through cache: its rules, and stored answers of their upstreams.

`cache_rule` has the fields of a rule, `rules` finds rules with their totals; `lookups` has the
answers of upstreams, `upstream_states` their failures; `fills` are blobs that are being fetched;
`missing` has blobs and children that cached manifests still lack; `cached_images` has the images of
a rule. The tables are in `tables`.
"""
