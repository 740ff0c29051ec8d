"""The person or program behind a principal, as answers show it."""

from __future__ import annotations

from cloudcore.iam.principal import read_source
from cloudcore.wire import ResponseBody


class ActingSource(ResponseBody):
    """The person or service account that acted, itself or in a role."""

    crn: str
    name: str
    """E-mail address of a person, name of a service account; as it was then."""
    session_name: str | None
    """Name of the role session; null without a role."""


def acting_source(stored: str | None) -> ActingSource | None:
    """Return the source that a column holds; None if it is unknown."""
    source = read_source(stored)
    return None if source is None else ActingSource(**source._asdict())
