"""Describe the commands of families: nouns (`Noun`), their commands (`Act`), options and columns.

A module of commands has a tuple ``COMMANDS`` of nouns; the command line is built from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from cloudcore.commands.client import ApiCalls
    from cloudcore.commands.invocation import Invocation

Record = Mapping[str, Any]

OptionKind = Literal[
    "text",
    "clearable",
    "number",
    "count",
    "limit",
    "boolean",
    "flag",
    "numbers",
    "texts",
    "many",
    "tags",
    "document",
    "documents",
    "file",
    "body",
    "span",
    "until",
    "secret",
    "asked",
    "credential",
    "null",
    "rest",
]
"""The values that an option takes:

``text``, ``number``
    one value
``clearable``
    a text, or an empty one, with which the field becomes null
``count``, ``limit``
    a number: 1 or more; or for a limit 0, with which the field becomes null
``boolean``
    ``--name`` or ``--no-name``
``flag``
    no value: the field becomes true
``texts``, ``tags``
    any number of values, or ``--no-names``; of ``tags`` each is ``KEY=VALUE``, and they become an
    object
``many``
    any number of values
``document``, ``file``
    the name of a file: a JSON object, or any text; ``-`` reads the standard input
``documents``
    any number of files with JSON objects
``body``
    a text, or ``-`` to read it from the standard input
``span``, ``until``
    a span of time, such as ``12h``: its seconds, or the time when it is over
``secret``
    no value: the secret is asked for, or read from the standard input
``asked``
    a secret that is asked for unless ``--no-name`` is given
``credential``
    a user name, whose secret is asked for; the field becomes an object of ``username`` and
    ``secret``
``null``
    no value: the field becomes null
``rest``
    all arguments after ``--``
"""
CellForm = Literal["text", "number", "time", "size", "duration", "whole", "digest", "digests"]
"""The format of a value in a table.

``whole``: never folded, so that it can be copied. ``digest``: the same, and cut to 12 digits unless
``--full-digests`` is given, which a command with such a column takes; ``digests``: a text in which
digests are cut so.
"""


class Cell(NamedTuple):
    """A column of a table."""

    heading: str
    field: str = ""
    """Of a row; ``depth.visible`` is a field of a field."""
    form: CellForm = "text"
    shown: Callable[[Record], object] | None = None
    """Returns the value of a row instead."""


Columns = Sequence[Cell | str]
"""The columns of a table; a field alone is under its own name, ``created_at`` as CREATED,
``image_count`` as IMAGES and ``size_bytes`` as SIZE."""


class Secret(NamedTuple):
    """A new secret, which is shown only once; ``--quiet`` prints nothing else."""

    words: str
    """The secret, for the help of ``--quiet``."""
    labels: Mapping[str, str]
    """Fields of the record that a person is shown, by label. The last one is the secret."""


class Option(NamedTuple):
    """A value on the command line, and the request field that it sets.

    An option that the user leaves out is not sent.
    """

    field: str
    """``redrive_policy.max_leases`` is a field of a field."""
    words: str
    """Help text."""
    kind: OptionKind = "text"
    name: str = ""
    """Of the option, without its dashes; by default as the last part of `field` is called, and in
    the singular for what is repeatable."""
    short: str = ""
    """A second name of one letter, without its dash."""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    is_argument: bool = False
    """An argument, without a dash; it must be given unless it `is_optional`."""
    is_required: bool = False
    is_optional: bool = False
    is_query: bool = False
    """It becomes a part of the query, where the others become the body."""
    group: str = ""
    """Of the options of a group at most one can be given, as of those that have one field. If one
    of them is required, one of the group is."""


def argument(
    field: str,
    words: str,
    kind: OptionKind = "text",
    *,
    metavar: str = "",
    is_optional: bool = False,
) -> Option:
    """Return a positional argument, which has no dash."""
    return Option(field, words, kind, metavar=metavar, is_argument=True, is_optional=is_optional)


Caller = Callable[["Invocation"], "ApiCalls"]
"""Returns the client by which a command acts."""
Sentence = str | Callable[["Invocation", Record], str]
"""A sentence about a record: text with its fields in braces, such as ``{user.name}`` or, of the
resource above, ``{above.name}``; or a function that returns it."""
Naming = str | Callable[["Invocation", Record], str]
"""The name of a row as other commands take it: a field, or a function that returns it."""


class Act(NamedTuple):
    """A command of a noun besides ``list``, ``show``, ``create``, ``update`` and ``delete``.

    It sends its options as the body (or the query of GET and DELETE), and prints the answer: a
    table if it has `columns`, or else `said`, or else the record.
    """

    verb: str
    words: str
    """Help text."""
    path: str = ""
    """After the path of the resource, or of the list if it `is_of_all`. One from the root, as
    ``/v1/actions``, is of no resource and of none above."""
    method: str = "POST"
    document: Mapping[str, Any] = {}
    """Fields of the body besides the options."""
    is_of_all: bool = False
    """It is of the list, and names no resource."""
    is_public: bool = False
    """It is called without a sign-in, at a `path` from the root; by GET with one, if there is one.
    """
    takes_key: bool = False
    """The operation takes an ``Idempotency-Key``."""
    options: tuple[Option, ...] = ()
    answer: str = ""
    """The field of the answer to print; without one the whole answer."""
    columns: Columns = ()
    row_name: Naming = ""
    """The answer is a list with pages; ``--quiet`` prints this of each row."""
    has_digests: bool = False
    """`run` prints digests, and the command takes ``--full-digests``."""
    said: str = ""
    """For a person, with fields in braces: of the answer or, if it was read, of the resource."""
    question: str = ""
    """Asked before, with fields of the resource in braces."""
    run: Callable[[Invocation], bool | None] | None = None
    """Carries the command out instead; returns False if something was refused (exit status 1)."""
    asks: bool = False
    """`run` asks itself."""
    secret: Secret | None = None
    """The secret that `run` shows once (`Invocation.say_secret`)."""
    caller: Caller | None = None
    """By which it acts, if not as the noun."""


def method_act(verb: str, words: str, answer: str, said: str, *, path: str = "") -> Act:
    """Return a command that calls a custom method of a resource; the default `path` is `verb`.

    The request has no body and carries an ``Idempotency-Key``; `answer` is the field of the
    response that has the resource.
    """
    return Act(verb, words, path or verb, takes_key=True, answer=answer, said=said)


class Deletion(NamedTuple):
    """The command ``delete``."""

    words: str
    question: Sentence
    """Asked before."""
    said: Sentence = "Deleted {name}"
    options: tuple[Option, ...] = ()
    """They become the query."""


@dataclass(frozen=True, kw_only=True)
class Noun:
    """A kind of resource and its commands. A command that is not described does not exist."""

    noun: str
    words: str
    """Help text."""
    path: str = ""
    """Of the list; from the root (``/v1/…``), or after the path of the parent. By default as the
    noun is called."""
    one: str = ""
    """The field of one record in an answer; its name is that of the argument too. By default the
    singular of `many`."""
    many: str = ""
    """The field of a list in an answer; by default as the noun is called."""
    columns: Columns = ()
    """Of ``list``, which a noun without columns has not."""
    name: str = "name"
    """The field of a record by which people name it."""
    name_filter: str = ""
    """The list's query parameter that selects a name; without one, all pages are read for it."""
    is_named_in_path: bool = False
    """Paths have the name, not the id."""
    singular: str = ""
    """Name of one for people, if not `one`."""
    plural: str = ""
    """Name of several for people, if not `many`."""
    metavar: str = ""
    """Of the argument, if not as `one`."""
    known_by: str = ""
    """Ways to name one, for the help, if not name, id or CRN."""
    within: str = ""
    """The field of a record that has its id and CRN, if the record itself has not."""
    is_of_account: bool = True
    """The account in its CRN is the caller's."""
    is_lower: bool = False
    """Names are in lower case."""
    find: Callable[[Invocation, str], Record] | None = None
    """Returns the resource of a name; of an empty name, the obvious one."""
    locate: Callable[[Invocation, str], str] | None = None
    """Returns the path of the resource that a text names, with those above it."""
    is_single: bool = False
    """There is one, at `path`: of each resource above it, or of all."""
    parent: Noun | None = None
    is_below_option: bool = False
    """An option names the parent, which has `find`."""
    caller: Caller | None = None
    """By which its commands act, if not in the role or as the program that is signed in."""
    has_show: bool = True
    shown: Callable[[Invocation, Record], None] | None = None
    """Shows a record to a person instead."""
    quiet: Naming = ""
    """Printed of each row by ``list --quiet``, if not the name."""
    filters: tuple[Option, ...] = ()
    """Options of ``list``; they become the query."""
    create: tuple[Option, ...] | None = None
    created: Sentence = "Created {name}"
    secret: Secret | None = None
    """The fields of the new record that a creation alone answers."""
    update: tuple[Option, ...] | None = None
    updated: Sentence = ""
    delete: Deletion | None = None
    conflicts: Mapping[str, str] = field(default_factory=dict)
    """Advice after a CONFLICT, by verb, with names of the command line in braces."""
    missing: Mapping[str, Sentence] = field(default_factory=dict)
    """Meaning of a 404, by verb, with names of the command line."""
    acts: tuple[Act, ...] = ()

    def __post_init__(self) -> None:
        many = self.many or self.noun.replace("-", "_")
        path = self.path or f"{'' if self.parent else '/v1/'}{self.noun}"
        for name, value in (("many", many), ("path", path), ("one", many.removesuffix("s"))):
            if not getattr(self, name):
                object.__setattr__(self, name, value)
