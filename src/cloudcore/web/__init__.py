"""The kernel of ``/v1``: application, route specs, guard, strict JSON, paging, rates, OpenAPI."""
