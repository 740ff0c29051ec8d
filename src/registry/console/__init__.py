"""The console: web pages, made by a client of ``/v1`` with the rights of the signed-in person.

`app` is the ASGI application, `admission` checks a request, `page_request` is one request for a
page, `control_plane` calls ``/v1``, `rendering` has the templates. `sessions` are sealed cookies.
`pages` are the pages by section; `nouns` makes the pages of the nouns that families describe, and
`menu` lists these. It may import no SQL, store or service of the registry.
"""
