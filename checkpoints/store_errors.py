"""What can be wrong with a store, as opposed to with what somebody asked of it."""

from __future__ import annotations

from checkpoints.errors import CheckreinError


class StoreError(CheckreinError):
    """The store could not do its work. Nothing of the refused call was kept.

    Attributes:
        store: Where the store is, without credentials.
        detail: What the database said.
    """

    code = "store"
    sentence = "The store {store} failed: {detail}."

    def __init__(self, store: str, detail: str = "") -> None:
        self.store = store
        self.detail = detail
        super().__init__(self.sentence.format(store=store, detail=detail))


class StoreBusyError(StoreError):
    """Another process held the write lock for longer than the store waits."""

    code = "store_busy"
    hint = "See which program has the store open (a backup, an editor, another tool), close it, and try again."
    sentence = "The store {store} stayed locked by another process: {detail}."


class StoreReadOnlyError(StoreError):
    """The store's file or folder cannot be written."""

    code = "store_read_only"
    hint = "Give this user write permission on the file and its folder, or name another store."
    sentence = "The store {store} is read-only: {detail}."


class StoreMissingError(StoreError):
    """The folder that should hold the store is not there, or is no folder."""

    code = "store_missing"
    hint = "Create the folder, or name another store."
    sentence = "There is no folder for the store {store}: {detail}."


class NotAStoreError(StoreError):
    """The file is no SQLite database, or a database of another program."""

    code = "not_a_store"
    hint = "Name another file: this one was left untouched."
    sentence = "{store} is not a Checkrein store: {detail}."


class StoreCorruptError(StoreError):
    """The database says that its own structure is damaged."""

    code = "store_corrupt"
    hint = "Stop every process that uses it, copy the file, and restore a backup or an exported thread."
    sentence = "The store {store} is damaged: {detail}."


class StoreFullError(StoreError):
    """No space for the write."""

    code = "store_full"
    hint = "Free disk space; nothing that was acknowledged is lost."
    sentence = "The store {store} has no space left: {detail}."


class StoreClosedError(StoreError):
    """The store was closed before the call."""

    code = "store_closed"
    hint = "Open the store again."
    sentence = "The store {store} is closed."


class StoreUnavailableError(StoreError):
    """The database server cannot be reached, or went away and did not come back in time.

    When it is raised by a write, `detail` says whether the write may have been kept.
    """

    code = "store_unavailable"
    hint = "Check that the database server runs and that its address is right, then try again."
    sentence = "The store {store} cannot be reached: {detail}."


class StoreVersionError(StoreError):
    """The store was written by a newer Checkrein.

    Attributes:
        found: The store's version.
        known: The newest version that this program knows.
    """

    code = "store_version"
    hint = "Upgrade Checkrein; the store was left untouched."

    def __init__(self, store: str, *, found: int, known: int) -> None:
        self.found = found
        self.known = known
        super().__init__(store)
        self.args = (f"The store {store} has version {found}; this program knows versions up to {known}.",)


class IntegrityError(CheckreinError):
    """A stored row is not what was written there: changed, moved from elsewhere, or of a type that may not be loaded.

    Attributes:
        row: What kind of row, for example `checkpoint`.
        thread_id: The thread it was read for.
        detail: What is wrong with it.
    """

    code = "integrity"
    hint = "Do not trust this thread. Fork it from an earlier checkpoint, or import it from an export."

    def __init__(self, row: str, thread_id: str, detail: str) -> None:
        self.row = row
        self.thread_id = thread_id
        self.detail = detail
        super().__init__(f"A stored {row} of thread {thread_id} was refused: {detail}.")
