"""What the command tells those who do not know it yet."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from importlib import metadata

import pytest

from cloudcore.commands.parser import CommandParser
from registry.cli import main as command_line
from registry.cli.main import main

pytestmark = pytest.mark.usefixtures("one_parser")


def ended(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return int(str(end.value.code))


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_the_help_has_every_command_once_and_examples_that_parse(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended("--help") == 0
    shown = capsys.readouterr().out
    (commands,) = [each for each in command_line.make_parser()._actions if each.choices]
    assert commands.choices is not None
    names = [each.dest for each in commands._choices_actions]  # type: ignore[attr-defined]
    assert set(commands.choices) - set(names) == {"__complete"}
    for name in names:
        assert len(re.findall(rf"^  {name} +[a-z]", shown, re.MULTILINE)) == 1
    examples = re.findall(r"^  entrepot (.+?)(?:  .*)?$", shown, re.MULTILINE)
    assert len(examples) == 5
    for example in examples:
        assert command_line.make_parser().parse_args(example.split()).run is not None


def test_a_parser_of_one_module_knows_its_commands_as_that_of_all_does() -> None:
    def helps(parser: argparse.ArgumentParser) -> dict[str, str]:
        (commands,) = [each for each in parser._actions if each.choices]
        assert isinstance(commands.choices, dict)
        return {
            name: "".join(each.format_help() for each in parsers(command))
            for name, command in commands.choices.items()
        }

    every = helps(command_line.make_parser())
    alone = {name: command_line._modules_of(name) for name in every}
    for name, modules in alone.items():
        if modules is not None:
            found = helps(command_line.make_parser(modules))
            assert name in found
            assert found.items() < every.items()
    assert {"whoami", "repositories", "clusters"} <= {each for each in alone if alone[each]}
    for name in ("gc", "__complete", "nothing", "--help"):
        assert command_line._modules_of(name) is None


@pytest.mark.parametrize("command", [(), ("images",), ("gc",)])
def test_without_a_command_its_help_is_shown(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"usage: {' '.join(('entrepot', *command))} [-h]")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("image", "list"), "there is no command 'image'; did you mean 'images'?"),
        (("repo", "list"), "there is no command 'repo'; did you mean 'repositories' or 'repo"),
        (("tags", "lsit"), "there is no command 'lsit'; did you mean 'list'?"),
        (("xyz",), "there is no command 'xyz'; 'entrepot --help' lists those there are"),
        (("gc", "xyz"), "there is no command 'xyz'; 'entrepot gc --help' lists those there are"),
    ],
)
def test_a_command_there_is_not_is_answered_by_the_one_that_was_meant(
    command: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*command) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("tags", "list", "app", "--prefx", "v"), "there is no option --prefx; did you mean --pre"),
        (("tags", "delete", "--yess=1"), "there is no option --yess; did you mean --yes?"),
        (("tags", "list", "app", "--xyz"), "there is no option --xyz\n"),
        (("tags", "list", "app", "-x"), "there is no option -x\n"),
        (("tags", "list", "app", "other"), "'other' is too much\n"),
    ],
)
def test_an_option_there_is_not_is_answered_by_its_own_command(
    command: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*command) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"usage: entrepot {command[0]} {command[1]} [-h]")
    assert f"entrepot {command[0]} {command[1]}: error: {words}" in told


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_bucket_is_no_folder_for_a_backup(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(command, "s3://backups/entrepot") == 2
    assert "'s3://backups/entrepot' is a URL, and a backup is a folder" in capsys.readouterr().err


def test_what_follows_two_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        command_line.make_parser().parse_args(["tags", "list", "--", "--app"]).repository == "--app"
    )
    assert ended("--xyz", "tags", "list", "app") == 2
    assert "entrepot: error: there is no option --xyz" in capsys.readouterr().err


def test_a_value_may_begin_with_a_dash() -> None:
    words = ("--command", "sh", "--command", "-c", "--command", "-o", "--command=-o")
    with pytest.raises(SystemExit):
        command_line.make_parser().parse_args(["instance-pools", "create", "web", *words[:-1]])
    given = command_line.make_parser().parse_args(
        ["instance-pools", "create", "web", *words[:4], words[-1]]
    )
    assert vars(given)["field:command--command"] == ["sh", "-c", "-o"]


def test_a_field_is_taken_away_by_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("instance-pools", "update", "--help") == 0
    told = capsys.readouterr().out
    for each in ("--no-command ", "--no-environment ", "--no-tags ", "--no-security-groups "):
        assert each in told


@pytest.mark.parametrize(
    "options",
    [
        ("buckets", "update", "b", "--kms-key", "k", "--no-kms-key"),
        ("access-keys", "create", "ci", "--expires-in", "1d", "--expires-at", "2100-01-01"),
        ("access-keys", "rotate", "ci", "--grace", "1d", "--now"),
        ("policies", "attach", "p", "--role", "r", "--service-account", "ci"),
    ],
)
def test_options_that_set_the_same_exclude_each_other(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*options) == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--version") == 0
    assert capsys.readouterr().out == f"entrepot {metadata.version('entrepot')}\n"


def test_every_help_can_be_printed() -> None:
    for parser in parsers(command_line.make_parser()):
        assert isinstance(parser, CommandParser)
        assert parser.format_help().startswith(f"usage: {parser.prog}")


def test_a_number_that_is_none_is_refused_in_plain_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended("serve", "--port", "web") == 2
    assert "error: argument --port: a whole number, not 'web'\n" in capsys.readouterr().err
