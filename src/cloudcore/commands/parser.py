"""An argument parser with command groups and suggested corrections; options shared by commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn, TypeAlias

from cloudcore.command_failures import MISUSE
from cloudcore.commands.records import FORMS, TABLE

Commands = argparse._SubParsersAction


class Group(NamedTuple):
    """Commands listed under one title in the help."""

    title: str
    commands: Sequence[argparse.Action]


class CommandParser(argparse.ArgumentParser):
    """A parser that may have subcommands; without a subcommand it prints its help."""

    groups: Sequence[Group] = ()
    """The groups in which the help lists the subcommands."""
    rest = ""
    """The attribute that takes all arguments after ``--``; empty if there is none."""

    def add_commands(
        self, kind: type[Commands[CommandParser]] | None = None
    ) -> Commands[CommandParser]:
        """Return the object to which subcommands are added; its class is `kind`, if passed."""
        commands = self.add_subparsers(
            action=kind or Commands, metavar="COMMAND", parser_class=CommandParser
        )
        self.groups = [Group("commands", commands._choices_actions)]
        self.set_defaults(run=self._show_help)
        return commands

    def format_help(self) -> str:
        """Return the help, the subcommands before the options."""
        if not self.groups:
            return super().format_help()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in (*self.groups, Group("options", self._optionals._group_actions)):
            formatter.start_section(group.title)
            formatter.add_arguments(group.commands)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; if an argument is unknown, exit with the usage of the subcommand."""
        given = list(sys.argv[1:] if args is None else args)
        rest: list[str] | None = None
        if self.rest and "--" in given:
            at = given.index("--")
            given, rest = given[:at], given[at + 1 :]
        if not self.groups:  # else options may be those of its subcommands
            for each in given[: given.index("--")] if "--" in given else given:
                self._check_option(each)
            given = [*self._joined(given)]
        parsed, unknown = super().parse_known_args(given, namespace)
        for each in unknown:
            self.error(f"there is no option {each}" if each[:1] == "-" else f"{each!r} is too much")
        if self.rest:
            setattr(parsed, self.rest, rest)
        return parsed, unknown

    def _joined(self, given: Sequence[str]) -> Iterator[str]:
        """Join an option to its value by ``=`` if the value begins with a dash, for argparse."""
        known, rest = self._option_string_actions, iter(given)
        for each in rest:
            if each == "--":
                yield each
                yield from rest
            elif each in known and known[each].nargs is None:
                value = next(rest, None)
                is_value = value is not None and value[:1] == "-" and value[:2] != "--"
                if is_value and value not in known:
                    yield f"{each}={value}"
                else:
                    yield from (each,) if value is None else (each, value)
            else:
                yield each

    def _check_option(self, given: str) -> None:
        """Exit if an option is unknown, before argparse reports missing options.

        The error suggests a similar option.
        """
        name, _, _ = given.partition("=")
        known = self._option_string_actions
        if (
            not name.startswith("--")
            or " " in name
            or any(map(str.startswith, known, [name] * len(known)))
        ):
            return
        meant = "".join(f"; did you mean {each}?" for each in get_close_matches(name, known, n=1))
        self.error(f"there is no option {name}{meant}")

    def _show_help(self, _options: argparse.Namespace) -> int:
        self.print_help(sys.stderr)
        return MISUSE

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:  # noqa: ANN401 - as in base
        """Convert an argument; raise `ArgumentError` if it is none of its type."""
        try:
            return int(arg_string) if action.type is int else super()._get_value(action, arg_string)
        except ValueError:
            raise argparse.ArgumentError(action, f"a whole number, not {arg_string!r}") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 - as in base
        """Raise `ArgumentError` for an unknown command; the error suggests a similar command."""
        if not isinstance(action, Commands) or value in action.choices:
            super()._check_value(action, value)
            return
        alike = [name for name in action.choices if name.startswith(value)]
        alike = alike or get_close_matches(value, action.choices, n=1)
        meant = f"; did you mean {' or '.join(map(repr, alike))}?" if alike else ""
        advice = f"'{self.prog} --help' lists those there are"
        raise argparse.ArgumentError(None, f"there is no command {value!r}{meant or f'; {advice}'}")


class VersionOption(argparse.Action):
    """The option that prints the version, which is computed only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the version and exit."""
        from importlib import metadata  # noqa: PLC0415 - 25 ms

        parser._print_message(f"{parser.prog} {metadata.version('entrepot')}\n", sys.stdout)
        parser.exit()


Verbs: TypeAlias = "Commands[CommandParser]"
Run: TypeAlias = Callable[[argparse.Namespace], int | None]
"""Carries a command out; returns the exit status, or None for 0."""


def add_noun(commands: Verbs, noun: str, words: str) -> Verbs:
    """Add a noun; return its subparsers, to which its commands are added."""
    return commands.add_parser(noun, help=words, description=_sentence(words)).add_commands()


def add_verb(verbs: Verbs, verb: str, run: Run, words: str) -> argparse.ArgumentParser:
    """Add a command that calls a registry, and return its parser."""
    parser = verbs.add_parser(verb, help=words, description=_sentence(words))
    add_registry(parser)
    add_output(parser)
    parser.set_defaults(run=run)
    return parser


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``--output``, the output format."""
    parser.add_argument("--output", "-o", choices=FORMS, default=TABLE, help="how to print (table)")


def add_registry(parser: argparse.ArgumentParser) -> None:
    """Add ``--registry``, the URL of the registry to call."""
    parser.add_argument(
        "--registry",
        metavar="URL",
        help="which registry (ENTREPOT_REGISTRY; else the only one you are signed in to)",
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
