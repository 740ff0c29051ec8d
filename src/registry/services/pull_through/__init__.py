"""The pull-through cache: repositories that are filled from an upstream when they are pulled.

- `manifests`: pull manifests, and revalidate cached ones
- `fetched_manifests`: fetch manifests that are absent
- `references`: add blobs and children that cached manifests still lack
- `lists`: tags and referrers
- `missing_blobs`: the entry for blobs that are absent
- `fill_or_follow`: fetch a blob, or wait for the worker that does
- `fill_blob`, `fill_staging`: write the bytes of a fill
- `feed`: serve the bytes to readers meanwhile
- `rules`, `remote`, `upstream_states`, `concurrency`: which upstream is asked, and when
- `retention`: delete images that nobody pulls
"""
