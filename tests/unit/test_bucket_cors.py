"""Which origins a pattern of a bucket's CORS rule stands for."""

from __future__ import annotations

import pytest

from cloudcore.storage.cors import CorsRule, find_rule


@pytest.mark.parametrize(
    ("pattern", "origin", "allowed"),
    [
        ("*", "https://any.example.com", True),
        ("*", "null", True),
        ("https://app.example.com", "https://app.example.com", True),
        ("https://app.example.com", "https://app.example.org", False),
        ("https://*.example.com", "https://a.b.example.com", True),
        ("https://*.example.com", "https://example.com", False),
        ("https://*.example.com", "https://evil.example/.example.com", False),
        ("http*://app.example.com", "https://app.example.com", True),
        ("*.example.com", "https://app.example.com", False),
        ("*example.com", "https://evil-example.com", False),
        ("https://*", "https://app.example.com", True),
        ("https://*", "http://app.example.com", False),
        ("http*", "https://app.example.com", False),
        ("https://app*app", "https://app", False),
    ],
)
def test_a_star_of_an_origin_stands_for_no_slash(
    pattern: str, origin: str, *, allowed: bool
) -> None:
    rule = CorsRule([pattern], ["GET"])
    assert (find_rule([rule], origin, "GET") is rule) == allowed
