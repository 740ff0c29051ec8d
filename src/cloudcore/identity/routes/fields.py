"""Field types shared by identity's request and response bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from cloudcore.identity.names import HANDLE_PATTERN, NAME_PATTERN
from cloudcore.web.pagination import PageQuery

Name = Annotated[
    str, Meta(min_length=1, max_length=63, extra_json_schema={"pattern": NAME_PATTERN})
]
"""Unique in the account, never changed, and no UUID."""
Handle = Annotated[
    str, Meta(min_length=2, max_length=32, extra_json_schema={"pattern": HANDLE_PATTERN})
]
"""The name of an account in image references; never changed, never given to another."""
Title = Annotated[str, Meta(min_length=1, max_length=100)]
Description = Annotated[str, Meta(max_length=1000)]
Document = dict[str, Any]
"""A policy document; see `cloudcore.iam.policy`."""
Reference = Annotated[str, Meta(min_length=1, max_length=700, description="UUID, name or CRN")]
Email = Annotated[str, Meta(min_length=3, max_length=254, extra_json_schema={"format": "email"})]
Status = Literal["active", "suspended"]


class PeopleQuery(PageQuery):
    """Parameters of a list of persons."""

    email: str | None = None
    """Only the one with this e-mail address."""

    @property
    def address(self) -> str:
        """Return the address in lower case, or nothing."""
        return (self.email or "").lower()
