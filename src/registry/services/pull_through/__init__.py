"""The pull-through cache: repositories that are filled from an upstream when they are pulled.

Manifests: `manifests` pulls and revalidates, `fetched_manifests` fetches absent ones, `references`
adds what they still lack, `lists` has tags and referrers. Blobs: `missing_blobs` is the entry,
`fill_or_follow` fetches or waits for the worker that does, `fill_blob` and `fill_staging` write,
`feed` serves readers meanwhile. `rules`, `remote`, `upstream_states` and `concurrency` decide which
upstream is asked, and when; `retention` deletes images that nobody pulls.
"""
