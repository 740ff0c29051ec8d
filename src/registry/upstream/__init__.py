"""A client of other registries, the *upstreams* from which the pull-through cache fetches.

`client`: fetches manifests, blobs, tags and referrers.
`request`: sends one request; follows redirects, and retries after a challenge.
`authentication`: parses challenges, and fetches tokens.
`response_headers`, `lists`: parse headers, and the pages of lists.
`base`: the types of inputs, results and failures.

Answers of an upstream are checked for their form, and otherwise untrusted. This package uses
neither the database nor the store.
"""
