"""The interface of the command line for the commands of families.

A module of commands has ``add_parsers(commands)``, which gets a `CommandLine`. A family describes a
noun with its commands as data (`Noun`); the command line makes the parsers, calls the operations
and prints what they answer. A command that is more than one request has a function (`Act.run`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

Record = Mapping[str, Any]

OptionKind = Literal[
    "text", "number", "boolean", "texts", "tags", "document", "file", "body", "null"
]
"""What an option takes:

``text``, ``number``
    one value
``boolean``
    ``--name`` or ``--no-name``
``texts``, ``tags``
    any number of values; of ``tags`` each is ``KEY=VALUE``, and they become an object
``document``, ``file``
    the name of a file: a JSON object, or any text; ``-`` reads the standard input
``body``
    a text, or ``-`` to read it from the standard input
``null``
    no value: the field becomes null
"""
CellForm = Literal["text", "number", "time", "size", "duration", "whole"]
"""How a table shows a value; ``whole``: never folded, so that it can be copied."""


class PublicList(NamedTuple):
    """A command that shows a public list."""

    verb: str
    words: str
    """Help text."""
    path: str
    field: str
    """The field of the response that holds the rows."""
    columns: tuple[tuple[str, str], ...]
    """The columns of the table: heading and field of a row."""


class Cell(NamedTuple):
    """A column of a table."""

    heading: str
    field: str
    """Of a row; ``depth.visible`` is a field of a field."""
    form: CellForm = "text"


class Option(NamedTuple):
    """A value that a command takes, and the field of the request that it becomes.

    An option that is not given is not sent.
    """

    field: str
    """``redrive_policy.max_leases`` is a field of a field."""
    words: str
    """Help text."""
    kind: OptionKind = "text"
    name: str = ""
    """Of the option, without its dashes; by default as the last part of `field` is called, and in
    the singular for ``tags``."""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    is_argument: bool = False
    """An argument, without a dash; it must be given."""
    is_required: bool = False


class ApiCalls(Protocol):
    """The client of the control plane, signed in."""

    def call(
        self,
        method: str,
        path: str,
        document: object = None,
        query: Mapping[str, str | int | bool | None] | None = None,
    ) -> dict[str, Any]:
        """Send `document` as JSON; return the answer."""
        ...

    def create(
        self,
        path: str,
        document: object = None,
        query: Mapping[str, str | int | bool | None] | None = None,
    ) -> dict[str, Any]:
        """Send a POST that takes effect once (``Idempotency-Key``); return the answer."""
        ...

    def send_file(self, path: str, file: BinaryIO, size: int, content_type: str) -> dict[str, Any]:
        """PUT the `size` bytes of a file, which can be read again; return the answer."""
        ...

    def receive_file(self, path: str, file: BinaryIO) -> int:
        """Write the bytes of the answer at `path` to a file; return how many."""
        ...

    def rows(
        self,
        path: str,
        field: str,
        query: Mapping[str, str | int | bool | None] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of all pages of a list."""
        ...


class Invocation(Protocol):
    """One run of a command."""

    @property
    def client(self) -> ApiCalls:
        """Return the client."""
        ...

    @property
    def path(self) -> str:
        """Return the path of the resource that the command names, or that of the list."""
        ...

    @property
    def record(self) -> Record:
        """Return the resource that the command names; it is read when asked for."""
        ...

    @property
    def values(self) -> dict[str, Any]:
        """Return what was given, by field."""
        ...

    def say(self, text: str, record: Record | None = None) -> None:
        """Print a line for a person; for a program the record, if there is one."""
        ...

    @property
    def is_for_program(self) -> bool:
        """Return True if the output is a document, not text for a person."""
        ...

    def warn(self, text: str) -> None:
        """Print a line to the standard error."""
        ...

    def for_each(self, items: Iterable[str], act: Callable[[str], None]) -> bool:
        """Call `act` with each item; tell which were refused, and return False if any was."""
        ...

    def show(self, record: Record) -> None:
        """Print a record."""
        ...

    def show_rows(self, rows: Iterable[Record], columns: Sequence[Cell]) -> None:
        """Print rows as they come."""
        ...


class Act(NamedTuple):
    """A command of a noun besides ``list``, ``show``, ``create``, ``update`` and ``delete``.

    It sends its options as the body (of GET and DELETE as the query), and prints what is answered:
    a table if it has `columns`, else `said`, else the record.
    """

    verb: str
    words: str
    """Help text."""
    path: str = ""
    """After the path of the resource, or of the list if it `is_of_all`."""
    method: str = "POST"
    is_of_all: bool = False
    """It names no resource."""
    is_public: bool = False
    """It names none above either, and is called without a sign-in, at `path` by itself."""
    takes_key: bool = False
    """The operation takes an ``Idempotency-Key``."""
    options: tuple[Option, ...] = ()
    answer: str = ""
    """The field of the answer to print; without one the whole answer."""
    columns: tuple[Cell, ...] = ()
    row_name: str = ""
    """The answer is a list with pages; ``--quiet`` prints this field of each row."""
    said: str = ""
    """For a person, with fields in braces: of the answer or, if it was read, of the resource."""
    question: str = ""
    """Asked before, with fields of the resource in braces."""
    run: Callable[[Invocation], bool] | None = None
    """Carries the command out instead; returns False if something was refused (exit status 1)."""


class Deletion(NamedTuple):
    """The command ``delete``."""

    words: str
    question: str
    """Asked before, with fields of the resource in braces."""
    said: str = "Deleted {name}"
    options: tuple[Option, ...] = ()
    """They become the query."""


class Noun(NamedTuple):
    """A kind of resource and its commands; those without a description do not exist."""

    noun: str
    words: str
    """Help text."""
    path: str
    """Of the list; of a noun that has a parent, after the path of the parent."""
    one: str
    """The field of one record in an answer; its name is that of the argument too."""
    many: str
    """The field of a list in an answer."""
    columns: tuple[Cell, ...]
    name: str = "name"
    """The field of a record by which people name it."""
    name_filter: str = ""
    """The list's query parameter that selects a name; without one, all pages are read for it."""
    is_named_in_path: bool = False
    """Paths have the name, not the id."""
    parent: Noun | None = None
    filters: tuple[Option, ...] = ()
    """Options of ``list``; they become the query."""
    create: tuple[Option, ...] | None = None
    created: str = "Created {name}"
    told_once: str = ""
    """The field beside the new record that a creation alone answers, if it answers it."""
    update: tuple[Option, ...] | None = None
    delete: Deletion | None = None
    acts: tuple[Act, ...] = ()


class CommandLine(Protocol):
    """The command line to which commands are added."""

    def add_public_lists(self, noun: str, words: str, lists: Sequence[PublicList]) -> None:
        """Add a noun with a command for each list, none of which needs a sign-in."""
        ...

    def add_described(self, noun: Noun) -> None:
        """Add a noun with its commands."""
        ...
