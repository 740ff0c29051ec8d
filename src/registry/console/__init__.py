"""The console: web pages, made by a client of ``/v1`` with the rights of the signed-in person.

- `app`: the ASGI application; `admission` checks a request.
- `page_request`: one request for a page, and the responses to it.
- `control_plane`: calls ``/v1``.
- `rendering`: the templates.
- `sessions`: sessions in sealed cookies.
- `pages`: the pages, by section.
- `nouns`: makes the pages of the nouns that families describe; `menu` lists these nouns.

The console may import no SQL, store or service of the registry.
"""
