"""Everything that reads bytes of strangers takes time in proportion to them.

Each regular expression of the two packages reads 25 kB of its worst input (``make soak``: 100 kB).
Each parser reads 100 kB: that a parser copies bytes too often shows only with many. Time is that of
this thread's processor: a reader may take 4 us a byte at most, and what takes long enough to
measure must not take 64 times as long for 16 times as much. 256 times is quadratic, and neighbours
that empty this processor's caches make it 45 times at worst. A new expression is found by itself; a
new parser goes into `foreign_parsers`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from time import thread_time
from typing import Any, Final

import pytest

import cloudcore
import registry
from tests.property.foreign_parsers import PARSERS, read_one
from tests.property.worst_inputs import ENDS, attacks
from tests.soak import IS_SOAK

SIZE: Final = 100_000
EXPRESSION_SIZE: Final = SIZE if IS_SOAK else 25_000
"""Bytes that an expression reads: one that is quadratic takes a second for them."""
MOST_GROWTH: Final = 64
SECONDS_PER_BYTE: Final = 4e-6
MEASURABLE: Final = 0.02
"""Seconds under which growth is not told from noise."""
QUICK: Final = 2e-4
"""Seconds: what reads the smallest input so quickly reads the largest soon, even if quadratic."""
ROUNDS: Final = (2, 40)
"""How often growth is measured: at least, and at most while it looks quadratic."""
METHODS: Final = {"fullmatch", "match", "search", "findall", "finditer", "split", "sub"}


def seconds(read: Callable[[], object]) -> float:
    """Return how long a reader takes."""
    began = thread_time()
    read_one(read)
    return thread_time() - began


def check(
    read: Callable[[Any], object], make: Callable[[int], Any], what: str, largest: int = SIZE
) -> None:
    """Check that reading what `make` makes of a size takes time in proportion to the size."""
    taken = QUICK
    for size in (largest // 32, largest // 4, largest):
        if size == largest // 4 and taken < QUICK:
            continue
        given = make(size)
        most = 0.05 + SECONDS_PER_BYTE * size
        taken = seconds(partial(read, given))
        if taken >= most:
            taken = min(taken, seconds(partial(read, given)))
        assert taken < most, f"{what}: {taken} s for {size} bytes"
    if taken > MEASURABLE:
        smaller = make(largest // 16)
        small = seconds(partial(read, smaller))
        for count in range(ROUNDS[1]):  # in turn, as a busy machine makes either slow for a while
            if count >= ROUNDS[0] and taken < MOST_GROWTH * small:
                break
            small = min(small, seconds(partial(read, smaller)))
            taken = min(taken, seconds(partial(read, given)))
        assert taken < MOST_GROWTH * small, (
            f"{what}: {small} s, then {taken} s for 16 times as much"
        )


def modules() -> Iterator[Any]:
    """Return every module of the two packages, but those that are programs' entries."""
    for package in (cloudcore, registry):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith((".__main__", ".env")) and ".versions." not in found.name:
                yield importlib.import_module(found.name)


def expressions() -> dict[str, re.Pattern[Any]]:
    """Return every regular expression that a module holds, however deep in what it holds."""
    found: dict[str, re.Pattern[Any]] = {}
    for module in modules():
        for name, value in vars(module).items():
            for number, pattern in enumerate(_patterns(value, 4)):
                found[f"{module.__name__}.{name}{f'[{number}]' if number else ''}"] = pattern
    return found


def _patterns(value: object, depth: int) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _patterns(item, depth - 1)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _patterns(item, depth - 1)
    elif depth and type(value).__module__.startswith(("cloudcore", "registry")):
        yield from _patterns(list(getattr(value, "__dict__", {}).values()), depth - 1)


def sources() -> Iterator[tuple[str, str]]:
    """Yield the modules of the two packages and their sources."""
    for top in (Path(package.__path__[0]) for package in (cloudcore, registry)):
        for path in top.rglob("*.py"):
            module = path.relative_to(top.parent).with_suffix("")
            yield ".".join(module.parts), path.read_text()


@cache
def methods() -> dict[str, set[str]]:
    """Return by which methods the source uses what it calls by a name."""
    found: dict[str, set[str]] = defaultdict(set)
    for _, text in sources():
        for name, method in re.findall(rf"(\w+)\s*\.\s*({'|'.join(METHODS)})\b", text):
            found[name].add(method)
    return found


EXPRESSIONS: Final = expressions()
IMPORTS_RE: Final = re.compile(r"^\s*import re\b", re.MULTILINE)


def test_expressions_are_found_in_the_source() -> None:
    """What is compiled elsewhere than for a module is read by a parser below."""
    elsewhere = set()
    for module, text in sources():
        for node in ast.parse(text).body if IMPORTS_RE.search(text) else ():
            targets = node.targets if isinstance(node, ast.Assign) else [node]
            name = getattr(getattr(targets[0], "target", targets[0]), "id", "")
            called = (ast.unparse(each.func) for each in ast.walk(node) if type(each) is ast.Call)
            used = {call.removeprefix("re.") for call in called if call.startswith("re.")}
            if "compile" in used and f"{module}.{name}" in EXPRESSIONS:
                continue
            if used & (METHODS | {"compile"}):
                elsewhere.add(module)
    assert elsewhere == {
        *("cloudcore.web.strict_json", "cloudcore.email.bounces.mail_server"),
        "cloudcore.compute.metadata_server",
        "cloudcore.identity.credentials",  # a text, an id of fixed length, and the rest
        "cloudcore.compute.shim_instances",  # reads words of this machine's errors
        "registry.metadata.migrations.versions.0001_tables",  # reads columns of its own source
        "registry.blobstore.s3.responses",  # looks for the name of a document, which each call has
    }


@pytest.mark.parametrize("name", sorted(EXPRESSIONS))
def test_no_expression_takes_long(name: str) -> None:
    pattern = EXPRESSIONS[name]
    base = name.rpartition(".")[2].partition("[")[0]
    for method in sorted(methods().get(base, set()) & METHODS | {"fullmatch"}):
        _check_expression(pattern, method, name)


def _check_expression(pattern: re.Pattern[Any], method: str, name: str) -> None:
    for lead, unit in attacks(pattern):
        for end in ENDS:
            check(
                partial(_apply, pattern, method),
                partial(_text, pattern, lead, unit, end),
                f"{name}.{method} of {lead!r} + {unit!r} * n + {end!r}",
                EXPRESSION_SIZE,
            )


def _text(pattern: re.Pattern[Any], lead: str, unit: str, end: str, size: int) -> Any:  # noqa: ANN401
    text = lead + unit * (size // len(unit)) + end
    return text.encode("utf-8") if isinstance(pattern.pattern, bytes) else text


def _apply(pattern: re.Pattern[Any], method: str, text: Any) -> object:  # noqa: ANN401
    if method == "sub":
        return pattern.sub(text[:0], text)
    return getattr(pattern, method)(text)


@pytest.mark.parametrize(
    ("bad", "method"),
    [(re.compile(rb"//|.+/\Z", re.DOTALL), "search"), (re.compile(r"a*[ab]*c"), "match")],
)
def test_what_is_quadratic_is_found(bad: re.Pattern[Any], method: str) -> None:
    with pytest.raises(AssertionError, match=" s for "):
        _check_expression(bad, method, "bad")


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_no_parser_takes_long(name: str) -> None:
    read, inputs = PARSERS[name]
    for given in inputs:
        lead, unit, end = given if isinstance(given, tuple) else (given[:0], given, given[:0])
        make = partial(_repeated, lead, unit, end)
        check(read, make, f"{name}: {lead!r} + {unit!r} * n + {end!r}")


def _repeated(lead: Any, unit: Any, end: Any, size: int) -> Any:  # noqa: ANN401 - text or bytes
    return lead + unit * (size // len(unit)) + end
