"""A kind of resource that accounts have, described once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.quotas.quota import Quota
from cloudcore.resource_names import check_name
from cloudcore.resources.record import Described, Record, fields_of

R = TypeVar("R", bound=Record)
Verb = Literal["create", "list", "get", "update", "delete"]
VERBS: Final[tuple[Verb, ...]] = ("create", "list", "get", "update", "delete")
"""The standard methods (Google's AIP-131 to 135)."""
_PAST: Final[Mapping[Verb, str]] = {"create": "created", "update": "updated", "delete": "deleted"}


class Filter(NamedTuple):
    """A query parameter of a list, which selects by a column of text."""

    name: str
    column: str = ""
    """By default that of its name."""
    read: Callable[[str], str] = str
    """Returns the value of the column for that of the parameter."""
    hides: str = ""
    """What the column has in those that are listed only if the parameter asks for them."""


class Target(NamedTuple):
    """What a field means that refers to another resource."""

    resource: Resource[Any]
    action: str
    """The right on it that naming it needs, such as ``queue:SendMessage``."""


@dataclass(frozen=True, kw_only=True)  # no slots: cached properties
class Resource(Generic[R]):
    """A kind of resource, by its record. It is cheap to make: no table, no route, no parser."""

    record: type[R]
    service: str
    """The family's name."""
    one: str
    """As bodies call one: ``queue``."""
    many: str
    words: str = ""
    """What one is called in sentences; by default `one`. Several are called so too, with the last
    word of `many`."""
    table: str = ""
    """Name of the table; by default `many`."""
    key: str = "name"
    """The field that is unique within account and region; it stands in CRNs. If it may be None,
    those that have none have no CRN, and policies see their ids."""
    named: str = ""
    """The field that persons know it by, if that is not the key."""
    check_key: Callable[[str], None] = check_name
    """Raises `InvalidInput` if a new one cannot have this key."""
    quota: int = 1000
    """Most that an account has, where no operator has set another limit."""
    filters: tuple[Filter, ...] = ()
    refers: Mapping[str, Target] = field(default_factory=dict, hash=False)
    """What the fields of other resources mean; a field that is not here means one of this kind."""
    methods: tuple[Verb, ...] = VERBS
    """The standard methods it has; a family writes the others by hand."""
    actions: Mapping[Verb, str] = field(default_factory=dict, hash=False)
    """Actions that are not called after verb and noun: ``{"get": "DescribeKeys"}``; and those of
    standard methods that a family writes by hand."""
    more_actions: tuple[str, ...] = ()
    """Actions of custom methods, without the service."""
    summaries: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Sentences for actions that no operation explains."""
    told: tuple[Verb, ...] = ("create", "update", "delete")
    """The changes that tell an event."""
    sample: Callable[[int], Mapping[str, object]] | None = None
    """Returns a request that creates one, another for each number; all shared tests use it. By
    default it has a name alone."""
    warnings: frozenset[str] = frozenset()
    """Codes of faults that may go by themselves."""
    keeps_deleted: bool = False
    """A deleted one keeps its row for a while, without its name (``deleted_at``)."""

    @property
    def fields(self) -> Mapping[str, Described]:
        """Return the fields of the record, without those that every record has."""
        return fields_of(self.record)

    @property
    def label(self) -> str:
        """Return the field that persons know one by."""
        return self.named or self.key

    @property
    def noun(self) -> str:
        """Return what one is called in sentences."""
        return self.words or self.one.replace("_", " ")

    @property
    def nouns(self) -> str:
        """Return what several are called in sentences."""
        *before, last = self.noun.split(" ")
        return " ".join((*before, f"{last}s" if last.isupper() else self.many.rpartition("_")[2]))

    @property
    def room(self) -> Quota:
        """Return how many an account may have in a region, as a quota of the family."""
        return Quota(self.many, self.quota, self.nouns)

    @property
    def path(self) -> str:
        """Return the path of the list."""
        return f"/v1/{self.many.replace('_', '-')}"

    @property
    def path_of_one(self) -> str:
        """Return the route template of one."""
        return f"{self.path}/{{{self.one}_id:str}}"

    def crn(self, region: str, account_id: str, key: str) -> str:
        """Return the CRN of one; `key` may be a pattern."""
        return f"crn:{self.service}:{region}:{account_id}:{self.type}/{key}"

    def crn_of(self, found: R) -> str:
        """Return the CRN of a record."""
        return self.crn(found.region, found.account_id, getattr(found, self.key) or found.id)

    @property
    def type(self) -> str:
        """Return the type in CRNs."""
        return self.one.replace("_", "-")

    def action(self, verb: Verb) -> str:
        """Return the action of a standard method: ``queue:CreateQueue``, ``queue:ListQueues``."""
        noun = camel(self.many if verb == "list" else self.one)
        return f"{self.service}:{self.actions.get(verb, verb.title() + noun)}"

    @cached_property
    def kind(self) -> ResourceKind:
        """Return what policies can name."""
        own = {self.action(verb) for verb in (*self.methods, *self.actions)}
        more = {f"{self.service}:{each}" for each in self.more_actions}
        return ResourceKind(
            crn=f"crn:{self.service}:<region>:<account>:{self.type}/<{self.label}>",
            actions=tuple(sorted(own | more)),
            summaries=self.summaries,
        )

    @cached_property
    def told_changes(self) -> Mapping[str, str]:
        """Return the types of its events by action."""
        return {self.action(verb): f"{self.service}.{self.one}.{_PAST[verb]}" for verb in self.told}

    def sampled(self, number: int = 0) -> Mapping[str, object]:
        """Return a request that creates one, another for each number."""
        return self.sample(number) if self.sample else {self.key: f"{self.type}-{number}"}

    def of_use(self, *uses: str) -> Sequence[Described]:
        """Return the fields that these set; see `Field.use`."""
        return [each for each in self.fields.values() if each.use.use in uses]


def camel(name: str) -> str:
    """Return ``ip_pool`` as ``IpPool``."""
    return name.title().replace("_", "")
