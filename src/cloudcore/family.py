"""What a family of operations brings to the platform, as one value.

The composition root holds one tuple of families and reads everything from it: routes, jobs,
timers, tables, names of resources, commands. A family takes part because it stands in that tuple;
importing a module registers nothing.

The value is cheap to import. What needs a web framework, a database or a command line stands
behind a function that imports it when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cloudcore.iam.resource_rules import ResourceRules

if TYPE_CHECKING:
    from litestar.types import ControllerRouterHandler
    from sqlalchemy import Table

    from cloudcore.db.base import Connection
    from cloudcore.jobs.kinds import JobKind
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.web.envelope import ErrorShape

Needs_contra = TypeVar("Needs_contra", contravariant=True)
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """One kind of resource, as policies name it."""

    crn: str
    """Form of its names; what varies is in angle brackets."""
    actions: tuple[str, ...]
    """All that can be done with it, as ``family:VerbNoun``."""
    rules: ResourceRules | None = None
    """What its own policies may say; None: it cannot have a policy."""


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """Commands that the help of the command line shows together."""

    title: str
    modules: tuple[str, ...]
    """Names of modules. Each has ``add_parsers(commands)`` and is imported when a command line is
    parsed; see `cloudcore.command_line`."""


def _nothing(_needs: Any = None) -> tuple[()]:  # noqa: ANN401 - of any family
    return ()


def _no_shapes() -> dict[str, ErrorShape]:
    return {}


@dataclass(frozen=True, kw_only=True)  # no slots: `Family[X](…)` sets an attribute
class Family(Generic[Needs_contra]):
    """One family.

    Its type argument is what its routes, jobs and timers are given when a process starts.
    What a family needs of another one is a port: a Protocol among its needs, which the
    composition root fills (`given`).
    """

    name: str
    """Also the service of its CRNs and actions."""
    routes: Callable[[Needs_contra], Sequence[ControllerRouterHandler]] = _nothing
    """Handlers under ``/v1``."""
    error_shapes: Callable[[], Mapping[str, ErrorShape]] = _no_shapes
    """By path prefix, where errors do not have the platform's envelope."""
    job_kinds: Callable[[Needs_contra], Sequence[JobKind]] = _nothing
    schedule: Callable[[Needs_contra], Sequence[Scheduled]] = _nothing
    """What is done again and again, by one process at a time."""
    expiry: Callable[[], Sequence[Callable[[Connection, int], object]]] = _nothing
    """Changes that delete rows whose time is over, given the present in microseconds since the
    epoch. Each runs hourly, in a transaction of its own."""
    tables: Callable[[], Sequence[Table]] = _nothing
    resource_kinds: tuple[ResourceKind, ...] = ()
    events: tuple[str, ...] = ()
    """Types of the events it publishes."""
    quotas: tuple[str, ...] = ()
    """Names of the quotas it counts, as refusals tell them (``params.quota``)."""
    commands: tuple[CommandGroup, ...] = ()

    def given(self, needs_of: Callable[[Other], Needs_contra]) -> Family[Other]:
        """Return this family as the composition root holds it: `needs_of` fills its needs.

        `needs_of` takes what the composition root made for the process.
        """
        own: Family[Any] = self  # `replace` cannot express that the type argument changes
        return replace(
            own,
            routes=lambda made: own.routes(needs_of(made)),
            job_kinds=lambda made: own.job_kinds(needs_of(made)),
            schedule=lambda made: own.schedule(needs_of(made)),
        )


def resource_rules(families: Sequence[Family[Any]]) -> tuple[ResourceRules, ...]:
    """Return what the policies of all kinds of resources may say."""
    kinds = [kind for family in families for kind in family.resource_kinds]
    return tuple(kind.rules for kind in kinds if kind.rules is not None)
