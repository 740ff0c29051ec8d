"""References as people write them."""

from __future__ import annotations

import pytest

from cloudcore.command_failures import Misuse
from registry.cli.client.references import TypedReference, parse_typed_reference

DIGEST = f"sha256:{'a' * 64}"
ID = "01890000-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("app", ("app",)),
        ("app:1.0", ("app", "1.0")),
        ("team/app:1.0", ("team/app", "1.0")),
        ("localhost:5000/acme/app", ("localhost:5000/acme/app",)),
        ("localhost:5000/acme/app:1.0", ("localhost:5000/acme/app", "1.0")),
        ("[::1]:5000/acme/app:1.0", ("[::1]:5000/acme/app", "1.0")),
        (f"app@{DIGEST}", ("app", None, DIGEST)),
        (f"app:1.0@{DIGEST}", ("app", "1.0", DIGEST)),
        (f"localhost:5000/a/app@{DIGEST}", ("localhost:5000/a/app", None, DIGEST)),
        (f"{ID}@{ID}", (ID, None, ID)),
        (f"{ID}:latest", (ID, "latest")),
        ("app@123abc", ("app", None, "123abc")),
        ("app@sha256:123abc", ("app", None, "sha256:123abc")),
    ],
)
def test_a_reference_is_taken_apart(written: str, parts: tuple[str, ...]) -> None:
    assert parse_typed_reference(written) == TypedReference(*parts)


@pytest.mark.parametrize(
    "written",
    [
        *("app:", "app:.hidden", "app:a b", "app:1:2@", "app@", "app@latest", "app@sha256:12345"),
        *(
            "app@sha512:123456",
            "app@12345A",
            f"app@{DIGEST.upper()}",
            f"app@{DIGEST}@{DIGEST}",
            "app:\x1b[2J",
        ),
        *("", ":1", f"@{DIGEST}"),
    ],
)
def test_what_is_no_reference_is_misuse_and_steers_no_terminal(written: str) -> None:
    with pytest.raises(Misuse) as told:
        parse_typed_reference(written)
    assert str(told.value).isprintable()
