"""Rows of the pull-through cache: its rules, and what is kept of their upstreams.

`rules` with their totals; `lookups` and `upstream_states` are answers and failures of upstreams;
`fills` are blobs that are being fetched; `missing` has what cached manifests still lack;
`cached_images` is what a rule has cached. The tables are in `tables`.
"""
