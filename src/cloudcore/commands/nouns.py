"""Describe commands: nouns (`Noun`), what can be done to them (`Command`), options and columns.

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
"""The format of a value in a table; some need explanation:

``whole``
    a value that is never folded, so that it can be copied
``digest``
    like ``whole``, but cut to 12 digits unless ``--full-digests`` is passed; commands with such a
    column have that option
``digests``
    a text whose digests are cut in the same way
"""


class Cell(NamedTuple):
    """A column of a table."""

    heading: str
    field: str = ""
    """The row's field to show; ``depth.visible`` is a nested field."""
    form: CellForm = "text"
    shown: Callable[[Record], object] | None = None
    """Returns the value for a row, in place of `field`."""


Columns = Sequence[Cell | str]
"""The columns of a table. A bare field name gets its heading from the name: ``created_at`` CREATED,
``image_count`` IMAGES and ``size_bytes`` SIZE."""


class Secret(NamedTuple):
    """A new secret, which is shown only once; ``--quiet`` prints nothing else."""

    words: str
    """The name of the secret, for the help of ``--quiet``."""
    labels: Mapping[str, str]
    """Maps labels to fields of the record, which a person is shown; the last is the secret."""


class Option(NamedTuple):
    """A value on the command line, and the request field that it sets.

    An option that the user leaves out is not sent.
    """

    field: str
    """The request field; ``redrive_policy.max_leases`` is a nested one."""
    words: str
    """Help text."""
    kind: OptionKind = "text"
    name: str = ""
    """The option's name without dashes; by default the last part of `field`, for the kinds
    ``numbers``, ``texts`` and ``tags`` in the singular."""
    short: str = ""
    """A one-letter alias, without its dash."""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    is_argument: bool = False
    """A positional argument, without a dash; required unless `is_optional`."""
    is_required: bool = False
    is_optional: bool = False
    is_query: bool = False
    """The value is sent in the query string, not in the body."""
    group: str = ""
    """At most one option of a group can be passed; options with the same field are a group too. If
    an option of the group `is_required`, one of the group must be passed."""


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
"""Returns the API client with which a command sends its requests."""
Sentence = str | Callable[["Invocation", Record], str]
"""A sentence about a record: a text with fields in braces, such as ``{user.name}`` or, for the
parent resource, ``{above.name}``; or a function that returns the sentence."""
Naming = str | Callable[["Invocation", Record], str]
"""The name of a row, as other commands accept it: a field, or a function that returns the name."""


class Command(NamedTuple):
    """A command of a noun besides ``list``, ``show``, ``create``, ``update`` and ``delete``.

    The command sends its options as the body (of GET and DELETE, as the query), and prints the
    response: a table if it has `columns`, else the sentence `said`, else the record.
    """

    verb: str
    words: str
    """Help text."""
    path: str = ""
    """The path below that of the resource, or of the list if `is_on_list`. A path from the root,
    such as ``/v1/actions``, is used alone: the command names no resource and no parent."""
    method: str = "POST"
    document: Mapping[str, Any] = {}
    """Fields of the body besides the options."""
    is_on_list: bool = False
    """The command is for the whole list, and names no resource."""
    is_public: bool = False
    """The command needs no sign-in, and its `path` begins at the root; a GET uses a sign-in if
    there is one."""
    takes_key: bool = False
    """The operation takes an ``Idempotency-Key``."""
    options: tuple[Option, ...] = ()
    answer: str = ""
    """The field of the response to print; if empty, the whole response."""
    columns: Columns = ()
    row_name: Naming = ""
    """If set, the response is a list with pages, and ``--quiet`` prints this name of each row."""
    has_digests: bool = False
    """`run` prints digests, and the command takes ``--full-digests``."""
    said: str = ""
    """Printed for a person. Fields in braces are those of the response or, if the resource was
    read, of the resource."""
    question: str = ""
    """The question to confirm before the request, with fields of the resource in braces."""
    run: Callable[[Invocation], bool | None] | None = None
    """Carries out the command in place of the request; returns False if something was refused (exit
    status 1)."""
    asks: bool = False
    """`run` asks for confirmation itself, and the command takes ``--yes``."""
    secret: Secret | None = None
    """The secret that `run` shows once (`Invocation.say_secret`)."""
    caller: Caller | None = None
    """Returns the command's client, if it is not the noun's."""


def method_command(verb: str, words: str, answer: str, said: str, *, path: str = "") -> Command:
    """Return a command that calls a custom method of a resource; the default `path` is `verb`.

    The request has no body and carries an ``Idempotency-Key``; `answer` is the field of the
    response that has the resource.
    """
    return Command(verb, words, path or verb, takes_key=True, answer=answer, said=said)


class Deletion(NamedTuple):
    """The command ``delete``."""

    words: str
    question: Sentence
    """The question to confirm before the request."""
    said: Sentence = "Deleted {name}"
    options: tuple[Option, ...] = ()
    """Sent in the query string."""


@dataclass(frozen=True, kw_only=True)
class Noun:
    """A kind of resource and its commands. A command that is not described does not exist."""

    noun: str
    words: str
    """Help text."""
    path: str = ""
    """The API path of the list: from the root (``/v1/…``), or below the parent's path. The default
    is made from `noun`."""
    one: str = ""
    """The response field with a single record, and the name of the argument; by default `many`
    without its final s."""
    many: str = ""
    """The response field with the list; by default `noun`, with underscores."""
    columns: Columns = ()
    """The columns of ``list``; without columns, the noun has no ``list``."""
    name: str = "name"
    """The field of a record by which users name the resource."""
    name_filter: str = ""
    """The query parameter of the list that selects a name; if empty, all pages are searched."""
    is_named_in_path: bool = False
    """API paths contain the name, not the id."""
    singular: str = ""
    """The singular in messages, if it is not `one`."""
    plural: str = ""
    """The plural in messages, if it is not `many`."""
    metavar: str = ""
    """The placeholder of the argument in the help, if it is not made from `one`."""
    known_by: str = ""
    """How users can name the resource, for the help, if not by name, id or CRN."""
    within: str = ""
    """The field of a record that contains its id and CRN, if the record itself does not."""
    is_of_account: bool = True
    """The account in the CRN is the caller's."""
    is_lower: bool = False
    """Names are in lower case."""
    find: Callable[[Invocation, str], Record] | None = None
    """Returns the record of a named resource; for an empty name, that of the default resource."""
    locate: Callable[[Invocation, str], str] | None = None
    """Returns the API path of a resource from a text that names the resource and its parents."""
    is_single: bool = False
    """There is only one such resource, at `path`: one for each parent, or one in all."""
    parent: Noun | None = None
    is_below_option: bool = False
    """The parent is named by an option, not by an argument; the parent must have `find`."""
    caller: Caller | None = None
    """Returns the client of its commands, if they do not act as the sign-in and its role."""
    has_show: bool = True
    shown: Callable[[Invocation, Record], None] | None = None
    """Shows a record to a person, in place of the default output."""
    quiet: Naming = ""
    """What ``list --quiet`` prints of each row, if not the name."""
    filters: tuple[Option, ...] = ()
    """Options of ``list``, sent in the query string."""
    create: tuple[Option, ...] | None = None
    created: Sentence = "Created {name}"
    secret: Secret | None = None
    """The fields of a new record that only the response to its creation contains."""
    update: tuple[Option, ...] | None = None
    updated: Sentence = ""
    delete: Deletion | None = None
    conflicts: Mapping[str, str] = field(default_factory=dict)
    """Advice after a CONFLICT, by verb. Names on the command line can be filled in, in braces."""
    missing: Mapping[str, Sentence] = field(default_factory=dict)
    """The explanation of a 404, by verb. Names on the command line can be filled in, in braces."""
    commands: tuple[Command, ...] = ()

    def __post_init__(self) -> None:
        many = self.many or self.noun.replace("-", "_")
        path = self.path or f"{'' if self.parent else '/v1/'}{self.noun}"
        for name, value in (("many", many), ("path", path), ("one", many.removesuffix("s"))):
            if not getattr(self, name):
                object.__setattr__(self, name, value)
