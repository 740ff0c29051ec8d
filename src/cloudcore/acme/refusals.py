"""How a conversation with an authority fails. Cheap to import."""

from __future__ import annotations

from typing import NamedTuple


class DomainProblem(NamedTuple):
    """Why an authority could not validate one domain."""

    domain: str
    """As it was asked for: a wildcard with its star."""
    code: str
    """The problem's type without its prefix (RFC 8555 §6.7), such as ``connection``."""
    detail: str


class AcmeRefused(Exception):
    """An authority refuses; the message says why."""

    def __init__(self, code: str, message: str, domains: tuple[DomainProblem, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        """The problem's type without its prefix."""
        self.domains = domains


class AcmeUnreachable(Exception):
    """An authority does not answer, or not now; the message says why."""
