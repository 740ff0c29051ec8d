"""The console: web pages, made by a client of ``/v1`` that has the signed-in person's rights.

- `app`: the ASGI application; `admission` checks a request.
- `page_request`: one request for a page, and its responses.
- `control_plane`: calls ``/v1``.
- `rendering`: the templates.
- `sessions`: sessions in sealed cookies.
- `pages`: the pages, by section.
- `nouns`: makes pages for the nouns (kinds of resources) that families describe.
- `menu`: lists the nouns that have pages.

The console may import no SQL, store or service of the registry.
"""
