"""Large outputs as files named by their SHA-256, so that the state keeps a digest and a preview.

A file is written aside, flushed and renamed, so a name that exists holds its whole content. The store keeps which threads
mention which file; a file that no thread mentions is swept.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
from datetime import datetime
from pathlib import Path

from checkpoints.errors import CheckreinError, UsageError
from checkpoints.store import Store
from checkpoints.tx import Tx, stamp

READ_BYTES = 1024 * 1024


class UnknownArtifactError(UsageError):
    """There is no artifact of this digest."""

    code = "unknown_artifact"
    hint = "It was swept with its thread, or the digest is wrong."

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(f"There is no artifact {digest}.")


class DamagedArtifactError(CheckreinError):
    """An artifact's file does not hold what its name says."""

    code = "damaged_artifact"
    hint = "Do not use its content; the disk or somebody changed the file."

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(f"Artifact {digest} was changed after it was written.")


class Artifacts:
    """The artifact folder of a store.

    Args:
        store: An open store.
        folder: Where the files are; made when it is first needed, for this user only.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder

    async def put(self, data: bytes, thread_id: str) -> str:
        """Keeps bytes for a thread and gives their digest. On disk, and mentioned, when it returns."""
        digest = hashlib.sha256(data).hexdigest()
        await asyncio.to_thread(self._write, digest, data)
        await self._store.write(_mention, digest, thread_id, len(data), self._store.clock.now())
        return digest

    async def adopt(self, file: Path, thread_id: str) -> str:
        """Keeps a finished file for a thread by moving it here, and gives its digest; the file is gone from its old place.

        The file must lie on the same file system, and nobody may write to it any more.
        """
        digest, size = await asyncio.to_thread(self._take, file)
        await self._store.write(_mention, digest, thread_id, size, self._store.clock.now())
        return digest

    async def belongs(self, digest: str, thread_id: str) -> bool:
        """Whether a thread mentions an artifact."""
        return await self._store.read(_mentioned_by, digest, thread_id)

    async def read(self, digest: str, *, offset: int = 0, limit: int = READ_BYTES) -> bytes:
        """At most `limit` bytes from `offset` on.

        Raises:
            UnknownArtifactError: No such artifact.
        """
        return await asyncio.to_thread(self._read, self.path(digest), offset, limit)

    async def size(self, digest: str) -> int:
        """How many bytes it has.

        Raises:
            UnknownArtifactError: No such artifact.
        """
        return await asyncio.to_thread(self._size, self.path(digest))

    async def verify(self, digest: str) -> None:
        """Reads the whole file and compares it with its name.

        Raises:
            UnknownArtifactError: No such artifact.
            DamagedArtifactError: It was changed.
        """
        if await asyncio.to_thread(self._digest_of, self.path(digest)) != digest:
            raise DamagedArtifactError(digest)

    def path(self, digest: str) -> Path:
        """Where the file of a digest is or would be.

        Raises:
            UnknownArtifactError: It is no digest.
        """
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise UnknownArtifactError(digest)
        return self._folder / digest[:2] / digest

    async def sweep(self) -> int:
        """Deletes the files that no thread mentions and gives their number."""
        mentioned = await self._store.read(_mentioned)
        return await asyncio.to_thread(self._sweep, mentioned)

    def _take(self, file: Path) -> tuple[str, int]:
        digest, size = self._digest_of(file), file.stat().st_size
        path = self.path(digest)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file.open("rb") as whole:
            os.fsync(whole.fileno())
        file.replace(path)
        _flush_folder(path.parent)
        return digest, size

    def _write(self, digest: str, data: bytes) -> None:
        path = self.path(digest)
        if path.exists():
            path.touch()
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(dir=path.parent)  # Made with mode 0600.
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(aside).replace(path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
        _flush_folder(path.parent)

    @staticmethod
    def _read(path: Path, offset: int, limit: int) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError as error:
            raise UnknownArtifactError(path.name) from error

    @staticmethod
    def _size(path: Path) -> int:
        try:
            return path.stat().st_size
        except FileNotFoundError as error:
            raise UnknownArtifactError(path.name) from error

    @staticmethod
    def _digest_of(path: Path) -> str:
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError as error:
            raise UnknownArtifactError(path.name) from error

    def _sweep(self, mentioned: frozenset[str]) -> int:
        # A file is written before it is mentioned, so a young one may be about to be.
        settled = self._store.clock.now().timestamp() - 3600
        swept = 0
        for path in self._folder.glob("??/*"):
            if path.name not in mentioned and path.stat().st_mtime < settled:
                path.unlink(missing_ok=True)
                swept += 1
        return swept


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mention(tx: Tx, digest: str, thread_id: str, size: int, now: datetime) -> None:
    tx.execute(
        "INSERT INTO artifacts (digest, thread_id, size, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (digest, thread_id) DO NOTHING",
        (digest, thread_id, size, stamp(now)),
    )


def _mentioned_by(tx: Tx, digest: str, thread_id: str) -> bool:
    return bool(tx.execute("SELECT 1 FROM artifacts WHERE digest = ? AND thread_id = ?", (digest, thread_id)))


def _mentioned(tx: Tx) -> frozenset[str]:
    return frozenset(digest for (digest,) in tx.execute("SELECT DISTINCT digest FROM artifacts"))
