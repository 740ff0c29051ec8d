"""Refuse a data folder or a database into which a restoration has not finished."""

from __future__ import annotations

from typing import Final

from cloudcore.db.opening import is_postgresql
from cloudcore.errors import Unavailable
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

UNDER_WAY: Final = "restore-under-way"
"""Name of the file in the data folder with the backup's id, until the restoration is complete."""
MARK: Final = "entrepot_restoration"
"""Name of the table with the same id in a PostgreSQL database, for other machines that use it."""


def check_is_whole(settings: Settings) -> None:
    """Check that no restoration into the data folder or the database is unfinished.

    Raise `SettingsError` if one is; `Unavailable` if the database cannot be reached.
    """
    if (settings.data / UNDER_WAY).exists():
        raise SettingsError(
            f"a restoration into {settings.data} was interrupted; "
            f"run the same 'entrepot restore' again, it goes on where it stopped"
        )
    if is_postgresql(settings.database) and _is_marked(settings.database):
        raise SettingsError(
            "the database of ENTREPOT_DATABASE_URL is being restored, or its restoration was"
            " interrupted; run the same 'entrepot restore' again, where it ran, to its end"
        )


def _is_marked(url: str) -> bool:
    import psycopg  # noqa: PLC0415 - one driver of two

    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            found = connection.execute("SELECT to_regclass(%s)", [MARK]).fetchone()
    except psycopg.OperationalError as error:
        raise Unavailable(f"cannot reach the database: {error}") from error
    return found != (None,)
