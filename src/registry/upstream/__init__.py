"""Other registries, asked as a client: the pull-through cache fetches from them.

`base` is the interface; `client` implements it over HTTP, by `request` (redirects and retries after
a challenge), `authentication` (challenges and tokens), `response_headers` and `lists`. Nothing that
an upstream says is believed beyond its form. It knows neither the database nor the store.
"""
