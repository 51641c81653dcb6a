"""The file below the store: opened once, one transaction at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, event, text
from sqlalchemy.exc import DatabaseError
from sqlmodel import Session, SQLModel, create_engine

from daemon.store.tables import MetaRow

SCHEMA = "4"

#: What makes the next schema of one, by the schema that it begins with.
_UPGRADES = {
    "1": (
        "ALTER TABLE job ADD COLUMN movable VARCHAR NOT NULL DEFAULT 'unknown'",
        "ALTER TABLE job ADD COLUMN movable_why VARCHAR NOT NULL DEFAULT ''",
        "ALTER TABLE job ADD COLUMN saved FLOAT",
        "ALTER TABLE job ADD COLUMN save_tried FLOAT",
        "ALTER TABLE job ADD COLUMN save_cost_seconds FLOAT",
        "ALTER TABLE job ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE job ADD COLUMN machine VARCHAR NOT NULL DEFAULT ''",
        "ALTER TABLE job ADD COLUMN after_crash VARCHAR",
        "ALTER TABLE job ADD COLUMN changed_files VARCHAR NOT NULL DEFAULT '[]'",
        "ALTER TABLE job ADD COLUMN avoid VARCHAR NOT NULL DEFAULT '[]'",
        "ALTER TABLE node ADD COLUMN machine VARCHAR NOT NULL DEFAULT ''",
        "ALTER TABLE node ADD COLUMN gone FLOAT",
    ),
    "2": (
        "ALTER TABLE checkpoint ADD COLUMN shared_bytes INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE checkpoint ADD COLUMN saved_bytes INTEGER NOT NULL DEFAULT 0",
    ),
    "3": ("ALTER TABLE node ADD COLUMN panicked FLOAT",),
}


class StoreError(Exception):
    """The store cannot be used; the text says what to do."""


class Database:
    """One SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine: Engine | None = None
        self.lock = threading.RLock()

    def open(self) -> None:
        """
        Open the file, or create it.

        One of an older stopgap is made a present one, in one transaction.

        Raises:
            StoreError: it is no database of ours, or that of a newer stopgap.
        """
        engine = create_engine(f"sqlite:///{self._path}", connect_args={"check_same_thread": False})
        event.listen(engine, "connect", _pragmas)
        try:
            SQLModel.metadata.create_all(engine)
            self._engine = engine
            self._check_schema()
        except DatabaseError as exc:
            self.close()
            raise StoreError(
                f"{self._path} cannot be used: {exc.orig}; restore it from a backup, or move it "
                "away to begin with an empty queue"
            ) from exc

    def close(self) -> None:
        """Close the file; it may be opened again."""
        with self.lock:
            if self._engine is not None:
                self._engine.dispose()
            self._engine = None

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Work in one transaction, which is committed at the end and undone by an exception."""
        with self.lock:
            if self._engine is None:
                raise StoreError(f"{self._path} is not open")
            with Session(self._engine, expire_on_commit=False) as session, session.begin():
                yield session

    def _check_schema(self) -> None:
        with self.session() as session:
            known = session.get(MetaRow, "schema")
            if known is None:
                session.add(MetaRow(key="schema", value=SCHEMA))
                return
            while known.value in _UPGRADES:
                statements = _UPGRADES[known.value]
                known.value = str(int(known.value) + 1)
                # SQLite's driver begins a transaction with the first change of a row only.
                session.flush()
                for statement in statements:
                    session.connection().execute(text(statement))
            if known.value != SCHEMA:
                raise StoreError(
                    f"{self._path} has schema {known.value}, this stopgap reads {SCHEMA}: "
                    "install the stopgap that wrote it, or move the file away"
                )


def _pragmas(connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]  # a DB-API connection
    # WAL with FULL: a change that was reported is on the disk.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
