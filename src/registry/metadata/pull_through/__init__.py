"""Rows of the pull-through cache: its rules, and stored answers of their upstreams.

- `tables`: all tables
- `cache_rule`: the fields of a rule
- `rules`: rules and their totals
- `lookups`: answers of upstreams
- `upstream_states`: failures of upstreams
- `fills`: blobs that are being fetched
- `missing`: blobs and children that cached manifests still lack
- `cached_images`: the images of a rule
"""
