"""One run of a command that a `Noun` describes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from string import Formatter
from typing import Any
from urllib.parse import quote

from cloudcore.command_failures import Missing, Misuse, RequestRefused
from cloudcore.commands.client import ApiCalls, Product, SignedIn
from cloudcore.commands.nouns import Caller, Cell, Columns, Naming, Noun, Option, Record, Secret
from cloudcore.commands.options import ASKED, values_of
from cloudcore.commands.prompts import confirm, read_new_password, read_secret
from cloudcore.commands.records import (
    TABLE,
    cells_of,
    field_of,
    formatted,
    printable,
    shows_digests,
    text_of,
    value_of,
    with_short_digests,
    write_record,
    write_records,
)
from cloudcore.errors import InvalidInput
from cloudcore.resource_names import Crn, parse_uuid, with_article


class Invocation:
    """One run of a command."""

    def __init__(
        self,
        noun: Noun,
        parsed: argparse.Namespace,
        options: Sequence[Option] = (),
        *,
        verb: str = "",
        is_on_list: bool = False,
        written: str | None = None,
        caller: Caller | None = None,
    ) -> None:
        self.verb = verb
        self._options = options
        self._noun = noun
        self._parsed = parsed
        self._is_of_all = is_on_list
        self._given = written
        self._caller = caller or noun.caller
        self._product: Product = parsed.product
        if not any(each.kind in ASKED for each in options):
            _ = self.values  # invalid ones are refused before the sign-in is read

    @cached_property
    def values(self) -> dict[str, Any]:
        """Return the values on the command line, by field; ask for those that are secrets."""
        return values_of(self._parsed, self._options)

    @cached_property
    def sign_in(self) -> SignedIn:
        """Return the sign-in to the server."""
        return self._product.sign_in(self._parsed)

    @cached_property
    def client(self) -> ApiCalls:
        """Return the API client that this command uses."""
        if self._caller is not None:
            return self._caller(self)
        return self.sign_in.client(in_role=True)

    @cached_property
    def path(self) -> str:
        """Return the API path of the named resource, or of the list if the command names none."""
        noun, written = self._noun, self.written
        if noun.locate is not None and not self._is_of_all:
            return noun.locate(self, written)
        path = self.list_path
        if self._is_of_all or noun.is_single:
            return path
        if noun.find is None:
            if noun.is_named_in_path:
                name = self._named(written) if self._crn is None else self._crn.name
                return f"{path}/{quote(name, safe='')}"
            if (found := parse_uuid(self._named(written))) is not None:
                return f"{path}/{found}"
        return f"{path}/{_inside(noun, self.record)['id']}"

    @cached_property
    def list_path(self) -> str:
        """Return the API path of the list of these resources."""
        path = self._noun.path
        return path if path.startswith("/") else f"{self.above.path}/{path}"

    @cached_property
    def above(self) -> Invocation:
        """Return an invocation of the same command for the parent resource."""
        assert self._noun.parent is not None
        return Invocation(
            self._noun.parent, self._parsed, verb=self.verb, caller=lambda _run: self.client
        )

    @property
    def written(self) -> str:
        """Return the resource's name on the command line, or an empty string."""
        given = self._given
        return getattr(self._parsed, self._noun.one, "") if given is None else given

    @property
    def names(self) -> dict[str, Any]:
        """Return the names of the resource and its parents on the command line.

        Each name is under the noun's `one` and under its `name`; the innermost noun wins.
        """
        above = {} if self._noun.parent is None else self.above.names
        return {**above, self._noun.one: self.written, self._noun.name: self.written}

    @cached_property
    def record(self) -> Record:
        """Return the record of the named resource, read from the server.

        Raise `Missing` if a search by name finds no record, `RequestRefused` if the server refuses.
        """
        noun, written = self._noun, self.written
        if noun.find is not None:
            return noun.find(self, written)
        is_at_path = noun.is_single or noun.locate is not None or noun.is_named_in_path
        if is_at_path or (noun.has_show and parse_uuid(written) is not None):
            found: Record = self.client.call("GET", self.path)[noun.one]
            return found
        self._named(written)
        crn = self._crn
        name = written.lower() if noun.is_lower else written
        known = {str(crn)} if crn else {name, parse_uuid(written)}
        query = {noun.name_filter: crn.name if crn else name} if noun.name_filter else None
        try:
            for row in self.client.rows(self.list_path, noun.many, query):
                inside = _inside(noun, row)
                names = {inside["crn"]} if crn else {field_of(row, noun.name), inside["id"]}
                if names & known:
                    return row
        except RequestRefused as error:
            if error.status != 403:
                raise
            words = f"the id of the {words_of(noun)} is found without a list: give that"
            raise error.with_advice(words) from None
        raise Missing(self._missing)

    def find(self, noun: Noun, written: str, client: ApiCalls | None = None) -> Record:
        """Return another resource by its name, id or CRN; raise `Missing` if there is none."""
        caller: Caller = lambda _run: self.client if client is None else client  # noqa: E731
        return Invocation(noun, self._parsed, written=written, caller=caller).record

    def crn_of(self, written: str) -> str:
        """Return `written` if it is a CRN, else the CRN of the resource with this name."""
        if written.startswith("crn:"):
            return written
        return self._product.crn_of(self.client, written)

    @property
    def _missing(self) -> str:
        noun, shown = self._noun, printable(self.written)
        if noun.parent is None or noun.is_below_option:
            return (
                f"there is no {words_of(noun)} {shown!r}; "
                f"'entrepot {noun.noun} list' shows those there are"
            )
        above = printable(self.above.written)
        return (
            f"{above} has no {words_of(noun)} {shown!r}; "
            f"'entrepot {noun.noun} list {above}' shows those it has"
        )

    def _named(self, written: str) -> str:
        if not written:
            raise Misuse(f"which {words_of(self._noun)}? an empty text names none")
        return written

    @cached_property
    def _crn(self) -> Crn | None:
        """Return the CRN on the command line, or None if the resource is named in another way.

        Raise `Misuse` if the CRN is of another kind of resource, `Missing` if the CRN is of another
        account.
        """
        written = self.written
        if not written.startswith("crn:"):
            return None
        crn = _crn_of(self._noun, written)
        if not self._noun.is_of_account:
            return crn
        own = _own_crn(self.client, crn)
        if own is None:
            raise Missing(f"{printable(written)!r} is {one_of(self._noun)} of another account")
        return own

    def confirm(self, question: str) -> None:
        """Ask for confirmation; with ``--yes`` or without a terminal, do not ask.

        Raise `CommandFailure` if the answer is not yes.
        """
        confirm(self._parsed, question)

    def ask_secret(self, name: str, *, is_new: bool = False) -> str:
        """Read a secret from the terminal (twice if it `is_new`) or from standard input."""
        return read_new_password() if is_new else read_secret(f"{name.capitalize()}: ", name)

    def log_in(self, program: str, username: str, password: str, host: str) -> None:
        """Log a container client on this machine in to `host`."""
        self._product.log_in(self.sign_in.url, program, username, password, host)

    def text(self, words: str, record: Record) -> str:
        """Fill in ``{field}`` in `words` from the record, and ``{above.field}`` from its parent."""
        above = {"above": self.above.record} if "{above." in words else {}
        return _Filling().vformat(words, (), {**record, **above})

    def say(self, text: str, record: Record | None = None) -> None:
        """Print a line for a person; for a program, print the record, if there is one."""
        if not self.is_for_program:
            sys.stdout.write(f"{printable(text)}\n")
        elif record is not None:
            self.show(record)

    def say_secret(
        self, text: str, record: Record, secret: Secret, document: Record | None = None
    ) -> None:
        """Print a line and a new secret for a person; print `document`, or `record`, for a program.

        With ``--quiet``, print only the secret to standard output, so that it can be piped.
        """
        *_, field = secret.labels.values()
        if self.is_for_program:
            self.show(record if document is None else document)
        elif self._parsed.quiet:
            sys.stderr.write(f"{printable(text)}\n")
            sys.stdout.write(f"{record[field]}\n")
        else:
            width = max(map(len, secret.labels))
            lines = [f"  {label:<{width}}  {record[of]}" for label, of in secret.labels.items()]
            self.say_lines((text, "", *lines, "", "Keep it now: it is shown this once."))

    def say_lines(self, lines: Iterable[str], record: Record | None = None) -> None:
        """Print lines for a person; for a program, print the record."""
        if record is not None and self.is_for_program:
            self.show(record)
            return
        for line in lines:
            self.say(line)

    @property
    def form(self) -> str:
        """Return the output format: ``table``, ``json``, ``jsonl`` or ``yaml``."""
        return str(self._parsed.output)

    @property
    def is_for_program(self) -> bool:
        """Return True if the output is a document, not text for a person."""
        return self.form != TABLE

    def warn(self, text: str) -> None:
        """Print a line to the standard error."""
        sys.stdout.flush()
        sys.stderr.write(f"entrepot: {printable(text)}\n")

    def for_each(self, items: Iterable[str], act: Callable[[str], None]) -> bool:
        """Call `act` with each item; warn of refused items, and return False if one was refused."""
        is_done = True
        for item in items:
            try:
                act(item)
            except RequestRefused as error:
                self.warn(f"{item}: {error}")
                is_done = False
        return is_done

    def show(self, record: Record) -> None:
        """Print a record."""
        write_record(record, self.form)

    def show_rows(
        self,
        rows: Iterable[Record],
        columns: Columns,
        name: Naming = "",
        document: Record | None = None,
    ) -> None:
        """Print rows as they arrive; with ``--quiet``, print only the `name` of each.

        For a program, print the `document` that contains the rows instead, if there is one.
        """
        if name and self._parsed.quiet:
            names = (name(self, row) if callable(name) else field_of(row, name) for row in rows)
            sys.stdout.writelines(f"{printable(str(each))}\n" for each in names)
        elif document is not None and self.is_for_program:
            self.show(document)
        else:
            write_records(rows, [*map(self._shortened, cells_of(columns))], self.form)

    def _shortened(self, cell: Cell) -> Cell:
        if not shows_digests(cell):
            return cell
        return cell._replace(shown=lambda row: self.shortened(text_of(value_of(cell, row))))

    def shortened(self, text: str) -> str:
        """Return a text with shortened digests, unless ``--full-digests`` was passed."""
        return text if getattr(self._parsed, "full_digests", False) else with_short_digests(text)


class _Filling(Formatter):
    """Formats text: replaces ``{field}`` by a field of a record, formatted for people."""

    def get_field(self, field_name: str, _args: object, kwargs: Record) -> tuple[str, str]:
        """Return the text of a field, or of a nested field."""
        return text_of(formatted(field_name, field_of(kwargs, field_name))), field_name


def _inside(noun: Noun, record: Record) -> Record:
    """Return the part of a record that contains the resource's id and CRN."""
    inside: Record = record[noun.within] if noun.within else record
    return inside


def _crn_of(noun: Noun, written: str) -> Crn:
    """Parse the CRN of a resource.

    Raise `Misuse` if the text is not a CRN, or the CRN is of another kind of resource.
    """
    try:
        crn = Crn.parse(written)
    except InvalidInput:
        crn = None
    if crn is None or crn.type != (noun.within or noun.one).replace("_", "-"):
        raise Misuse(f"{printable(written)!r} is no CRN of {one_of(noun)}")
    return crn


def words_of(noun: Noun) -> str:
    """Return the singular name of a kind of resource, for messages."""
    return noun.singular or noun.one.replace("_", " ")


def one_of(noun: Noun) -> str:
    """Return the singular name of a kind of resource with its article: ``a user``."""
    return with_article(words_of(noun))


def _own_crn(client: ApiCalls, crn: Crn) -> Crn | None:
    """Return a CRN of the client's account with the account's id, even if it had the handle.

    Return None if the CRN is of another account. For a person without a role, return the CRN
    unchanged. Raise `Misuse` if the CRN has a handle, and the client may not read the handle of its
    account.
    """
    own_id = client.account_id
    if own_id is None:  # a person without a role, whom the registry refuses
        return crn
    if (given := parse_uuid(crn.account)) is None and crn.account == _handle(client, own_id):
        given = own_id
    return crn._replace(account=own_id) if given == own_id else None


def _handle(client: ApiCalls, account_id: str) -> str:
    try:
        handle: str = client.call("GET", f"/v1/accounts/{account_id}")["account"]["handle"]
    except RequestRefused as error:
        if error.status != 403:
            raise
        raise Misuse(
            "your rights do not show the handle of your account; write its id in the CRN instead,"
            f" {account_id}"
        ) from None
    return handle
