"""A family of operations, as one value.

The composition root reads routes, jobs, tables, commands and so on from one tuple of families;
importing a module registers nothing. The value is cheap to import, as the command line reads it
too: what needs a web framework or a database is in its `Runtime`, which only a server imports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cloudcore.iam.templates import PolicyTemplate
from cloudcore.iam.vocabulary import ResourceKind, Vocabulary
from cloudcore.metering.sku import Sku
from cloudcore.quotas.quota import Quota
from cloudcore.resource_names import with_article
from cloudcore.resources.resource import Resource

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from litestar.handlers import HTTPRouteHandler

    from cloudcore.db.rows import Forget
    from cloudcore.jobs.kinds import JobKind
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.metering.sampling import Measure
    from cloudcore.nodes.node import Watch
    from cloudcore.nodes.rows import Placing
    from cloudcore.ports import Offer, Opening
    from cloudcore.quotas.limits import Counted
    from cloudcore.web.envelope import ErrorShape

Needs = TypeVar("Needs")


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """Commands under one title in the help; groups with the same title are merged."""

    title: str
    modules: tuple[str, ...]
    """Names of modules, imported when a command line is parsed. Each has ``COMMANDS``
    (`cloudcore.commands.nouns`) or, for other parsers, a function ``add_parsers``."""


def _nothing(_needs: Any) -> tuple[()]:  # noqa: ANN401 - of any family
    return ()


def _same(needs: Any) -> Any:  # noqa: ANN401 - of any family
    return needs


async def _needs_nothing(_opening: Opening) -> Any:  # noqa: ANN401 - of any family
    return None


async def _begin_nothing(_needs: Any, _resources: AsyncExitStack) -> None:  # noqa: ANN401
    pass


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: `Runtime[X](…)` sets an attribute
class Runtime(Generic[Needs]):
    """The part of a family that only a server needs.

    Its type parameter is the type of the dependencies that its routes, jobs and timers receive when
    a process starts. A family uses another family only through a port (`cloudcore.ports`).
    """

    open: Callable[[Opening], Awaitable[Needs]] = _needs_nothing
    """Makes the family's dependencies, once in a process, from the ports that it requests."""
    offers: Sequence[Offer] = ()
    """Implementations of ports for other families."""
    begin: Callable[[Needs, AsyncExitStack], Awaitable[None]] = _begin_nothing
    """Starts what a worker serves besides HTTP requests; it is stopped when the stack is closed."""
    routes: Sequence[HTTPRouteHandler] = ()
    """Handlers under ``/v1``. They are made before the dependencies: a handler takes those that it
    needs as its parameter ``needs``."""
    provided: Callable[[Needs], object] = _same
    """Returns the value of the handlers' parameter ``needs``; called once, at the start."""
    error_shapes: Mapping[str, ErrorShape] = field(default_factory=dict)
    """Error shapes by path prefix, where they differ from the platform's envelope."""
    job_kinds: Callable[[Needs], Sequence[JobKind]] = _nothing
    schedule: Callable[[Needs], Sequence[Scheduled]] = _nothing
    """The family's periodic chores, each run by one process at a time."""
    on_node: Callable[[Needs], Sequence[Watch]] = _nothing
    """What the family watches on each machine, in one process of that machine."""
    placings: Sequence[Placing] = ()
    """Kinds of resources that the family places on machines."""
    expiry: Sequence[Forget] = ()
    """Changes that delete a batch of expired rows; they get the current time in microseconds since
    the epoch. Each runs hourly, in transactions of its own, until it deletes nothing."""
    samples: Mapping[str, Measure] = field(default_factory=dict)
    """Maps SKUs that are sampled each hour to functions that measure what accounts store."""
    uses: Sequence[Counted] = ()
    """Functions that count how much an account has, for quotas that can be counted."""


@dataclass(frozen=True, kw_only=True)  # no slots: `Family[X](…)` sets an attribute
class Family(Generic[Needs]):
    """A family of operations, such as compute or email."""

    name: str
    """Name of the family, and the service in its CRNs and actions."""
    runs: str | Runtime[Needs] = field(default_factory=Runtime)
    """The family's runtime, or where it is (``module:NAME``), to be imported at the first use."""
    title: str = ""
    """What users call the family's resources; if empty, the capitalized name is shown."""
    host: str | None = ""
    """Name of the family in the setting `family_hosts`; if empty, its `name`. A family with None is
    served on every host."""
    paths: tuple[str, ...] = ()
    """First segments of the paths of the family's routes, such as ``/v1/queues``. No other family
    has routes there. The paths of `resources` are added."""
    resources: tuple[Resource[Any], ...] = ()
    """Resources with a full description; their kinds, events and quotas are added to the fields
    below."""
    resource_kinds: tuple[ResourceKind, ...] = ()
    foreign_kinds: tuple[ResourceKind, ...] = ()
    """Kinds of resources of other families, which may be absent, on which this family's operations
    need rights."""
    recorded_actions: tuple[str, ...] = ()
    """Actions in the audit log that are neither in `resource_kinds` nor in
    `event_types_by_action`."""
    policy_templates: tuple[PolicyTemplate, ...] = ()
    """The family's ready-made policies."""
    event_types_by_action: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The event type of each change, by the action that the audit log records for the change."""
    other_events: tuple[str, ...] = ()
    """Types of the events that are not derived from the audit log."""
    event_words: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Sentences shown to users, by event type, where the type alone gives no good sentence."""
    skus: tuple[Sku, ...] = ()
    """The kinds of use that the family reports and prices. If one is called ``requests``, requests
    of the family's routes count as it."""
    quotas: tuple[Quota, ...] = ()
    """The family's limits; an error names the limit in ``params.quota``."""
    commands: tuple[CommandGroup, ...] = ()

    def __post_init__(self) -> None:
        """Add the kinds, paths, events and quotas that follow from `resources`."""
        kinds = (*self.resource_kinds, *(each.kind for each in self.resources))
        told = {
            action: name
            for each in self.resources
            for action, name in each.event_types_by_action.items()
        }
        states = {
            event: each.states[status]
            for each in self.resources
            for status, event in each.state_events.items()
        }
        quotas = (*self.quotas, *(each.room for each in self.resources))
        paths = (*self.paths, *(each.path for each in self.resources))
        object.__setattr__(self, "host", self.name if self.host == "" else self.host)
        object.__setattr__(self, "paths", tuple(dict.fromkeys(paths)))
        object.__setattr__(self, "resource_kinds", tuple(dict.fromkeys(kinds)))
        object.__setattr__(self, "event_types_by_action", {**self.event_types_by_action, **told})
        events = tuple(dict.fromkeys((*states, *self.other_events)))
        object.__setattr__(self, "other_events", events)
        object.__setattr__(self, "event_words", {**states, **self.event_words})
        object.__setattr__(self, "quotas", tuple(dict.fromkeys(quotas)))

    @property
    def runtime(self) -> Runtime[Needs]:
        """Import and return the part that a server needs."""
        if isinstance(self.runs, Runtime):
            return self.runs
        module, _, name = self.runs.partition(":")
        found: Runtime[Needs] = getattr(import_module(module), name)
        return found

    @property
    def open(self) -> Callable[[Opening], Awaitable[Needs]]:
        """Return the function that opens the family's dependencies."""
        return self.runtime.open

    @property
    def events(self) -> tuple[str, ...]:
        """Return the types of the family's events, which event rules may name."""
        return (*dict.fromkeys(self.event_types_by_action.values()), *self.other_events)

    @property
    def events_in_words(self) -> Mapping[str, str]:
        """Map event types to sentences such as ``A queue was created``."""
        nouns = {each.one: each.noun for each in self.resources}
        return {each: self.event_words.get(each) or _sentence(each, nouns) for each in self.events}


def _sentence(event: str, nouns: Mapping[str, str]) -> str:
    """Return the sentence for an event type such as ``queue.queue.created``."""
    _, one, done = event.split(".")
    noun = nouns.get(one, one.replace("_", " "))
    words = f"{with_article(noun)} was {done.replace('_', ' ')}"
    return words[0].upper() + words[1:]


def vocabulary(families: Sequence[Family[Any]]) -> Vocabulary:
    """Return the vocabulary of policies: the resource kinds and templates of all families."""
    own = {kind.crn: kind for family in families for kind in family.resource_kinds}
    foreign = {kind.crn: kind for family in families for kind in family.foreign_kinds}
    templates = [template for family in families for template in family.policy_templates]
    recorded = [
        action
        for family in families
        for action in (*family.event_types_by_action, *family.recorded_actions)
    ]
    return Vocabulary(list((foreign | own).values()), templates, recorded)


def skus_of(families: Sequence[Family[Any]]) -> tuple[Sku, ...]:
    """Return the SKUs of all families."""
    return tuple(sku for family in families for sku in family.skus)
