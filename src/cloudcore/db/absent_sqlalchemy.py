"""Keep SQLAlchemy out of a process: import a stand-in for it that builds nothing.

A server needs the text of its statements, not what they were built with: some 25 MiB in each
process. While the stand-in is imported, modules with tables and statements are imported as always,
and what they build is `_Absent`; `sql_writer` has another process write the text. An absent thing
takes part in building others, and has no columns; to ask what it is raises TypeError.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final, NoReturn

_LIBRARY: Final = "sqlalchemy"
_NEEDS_IT: Final = "alembic"


def keep_out_sqlalchemy() -> bool:
    """Import the stand-in from here on; return False if SQLAlchemy is loaded already."""
    if is_sqlalchemy_absent():
        return True
    if _LIBRARY in sys.modules:
        return False
    sys.meta_path.insert(0, _Finder())
    return True


def is_sqlalchemy_absent() -> bool:
    """Return True if `keep_out_sqlalchemy` has kept it out."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


class _Absent:
    """What stands for a table, an expression, a statement, a function or a class."""

    __slots__ = ()

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        """Take anything: a class whose base is absent is made by a call too."""

    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        """Forget it."""

    def __call__(self, *_args: object, **_kwargs: object) -> _Absent:
        return self

    def __getitem__(self, _key: object) -> _Absent:
        return self

    def __iter__(self) -> Iterator[_Absent]:
        return iter(())

    def _built(self, *_others: object) -> _Absent:
        return self

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _built  # type: ignore[assignment]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _built
    __mod__ = __and__ = __rand__ = __or__ = __ror__ = __invert__ = __neg__ = _built
    __hash__ = object.__hash__

    def _refuse(self, *_others: object) -> NoReturn:
        raise TypeError("SQLAlchemy is kept out of this process: only build statements with it")

    __bool__ = __str__ = __format__ = __len__ = __int__ = __index__ = __instancecheck__ = _refuse
    __contains__ = _refuse


_ABSENT: Final = _Absent()


class _AbsentModule(ModuleType):
    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return _ABSENT


class _Finder(MetaPathFinder, Loader):
    """Finds the stand-in for every module of the library."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package == _NEEDS_IT:
            raise ImportError(f"{_NEEDS_IT} needs SQLAlchemy, which is kept out of this process")
        return ModuleSpec(fullname, self, is_package=True) if package == _LIBRARY else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: any name is found in it."""
