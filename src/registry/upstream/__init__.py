"""Other registries, asked as a client: the pull-through cache fetches from them.

`base` is the interface; `client` implements it over HTTP, by `request` (redirects and retries after
a challenge), `authentication` (challenges and tokens), `response_headers` and `lists`. Answers of
an upstream are checked for their form and are otherwise untrusted. This package knows neither the
database nor the store.
"""
