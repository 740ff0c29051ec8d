"""A client of other registries, from which the pull-through cache fetches.

`client` calls them over HTTP, using `request` (redirects and retries after a challenge),
`authentication` (challenges and tokens), `response_headers` and `lists`; `base` has the types of
inputs, results and failures. Answers of an upstream are checked for their form, and otherwise
untrusted. This package uses neither the database nor the store.
"""
