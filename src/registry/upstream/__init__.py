"""Other registries, asked as a client: the pull-through cache fetches from them.

`client` asks them over HTTP, by `request` (redirects and retries after a challenge),
`authentication` (challenges and tokens), `response_headers` and `lists`; `base` has what goes in,
what comes out, and the failures. Answers of an upstream are checked for their form and are
otherwise untrusted. This package knows neither the database nor the store.
"""
