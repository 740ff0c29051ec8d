"""A field of requests and answers that is not one column of the record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import UnsetType

from cloudcore.resources.record import Record
from cloudcore.wire import RequestBody, ResponseBody

if TYPE_CHECKING:
    from cloudcore.web.context import RequestContext

R = TypeVar("R", bound=Record)
G = TypeVar("G", bound=RequestBody)


@dataclass(frozen=True, kw_only=True)
class Composite(Generic[R, G]):
    """An object in bodies that is several fields of the record, or none, such as a policy."""

    name: str
    words: str = ""
    """What the OpenAPI document says of it."""
    shown: type[ResponseBody]
    given: type[G] | None = None
    """What requests have; None if only answers have it."""
    resolve: Callable[[RequestContext, G | None], Awaitable[Mapping[str, object]]] | None = None
    """Returns the fields of the record for what a request gives; it may read, and asks rights."""
    show: Callable[[R], ResponseBody | UnsetType | None]
    """Returns what an answer has; `UNSET` if it is left out."""
