"""Where this runtime keeps its things and whom it asks: the one reader of the process's environment."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from checkpoints.errors import CheckreinError

STORE, MODEL, BASE_URL = "CHECKREIN_STORE", "CHECKREIN_MODEL", "CHECKREIN_BASE_URL"
API_KEYS = ("CHECKREIN_API_KEY", "OPENAI_API_KEY")
STATE_HOME, CONFIG = "CHECKREIN_HOME", "CHECKREIN_CONFIG"
KEY_BYTES = 32


class StateFolderError(CheckreinError):
    """The state folder, or the key in it, cannot be made or read."""

    code = "state_folder"

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        super().__init__(f"The state folder {path} cannot be used: {error.strerror or error}.")
        self.hint = f"Make it writable for this user, or name another one with {STATE_HOME}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment and the user's folders say.

    Attributes:
        home: The state folder: store, key, artifacts, spilled outputs. Never inside a workspace.
        store: Path or URL of the store.
        model: Model to ask when a run names none.
        base_url: Endpoint to ask when a run names none.
        config: The user's configuration file; None takes the platform's place for it.
        key_name: Environment variable that holds the endpoint's key, empty when none is set. Never the key itself.
    """

    home: Path
    store: str
    model: str
    base_url: str
    key_name: str
    config: Path | None = None

    @property
    def spill(self) -> Path:
        """Where outputs go that are too large to keep in memory."""
        return self.home / "outputs"

    @property
    def kept(self) -> tuple[Path, ...]:
        """What no command of an agent may reach: the state folder, and the store's file where it lies elsewhere."""
        beside = [] if "://" in self.store else [Path(f"{self.store}{end}") for end in ("", "-wal", "-shm")]
        return (self.home, *beside)

    @property
    def sandboxes(self) -> Path:
        """Where sandbox sessions have their workspaces: beside the state folder, since agents write there."""
        return self.home.with_name(f"{self.home.name}-sandboxes")

    def grant_key(self) -> bytes:
        """The key that grants are signed with: made on first use, readable for this user only.

        Raises:
            StateFolderError: The folder or the file cannot be used.
        """
        path = self.home / "grant.key"
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _key_at(path)
        except OSError as error:
            raise StateFolderError(self.home, error) from error


def read_settings(store: str = "", environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this process.

    Args:
        store: Path or URL that overrules the environment's.
        environment: Where to read.
    """
    home = Path(environment.get(STATE_HOME) or platformdirs.user_state_path("checkrein"))
    return Settings(
        home=home,
        store=store or environment.get(STORE) or str(home / "checkrein.db"),
        model=environment.get(MODEL, ""),
        base_url=environment.get(BASE_URL, ""),
        config=Path(environment[CONFIG]) if environment.get(CONFIG) else None,
        key_name=next((name for name in API_KEYS if environment.get(name)), ""),
    )


def _key_at(path: Path) -> bytes:
    """The key in a file. Written aside and linked into place, so that two first users agree on one key."""
    if not path.exists():
        aside = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(aside, path)
        finally:
            aside.unlink()
    return path.read_bytes()
