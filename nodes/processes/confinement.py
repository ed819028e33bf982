"""The default confinement of an agent's commands: what they may write, and which files of a person they never see."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from nodes.processes.spec import Confinement

CREDENTIALS = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".docker/config.json",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials.toml",
    ".config/gh",
    ".config/git/credentials",
    ".config/gcloud",
    ".config/hub",
    ".config/op",
    ".local/share/keyrings",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".password-store",
    ".terraform.d/credentials.tfrc.json",
)
"""Below the home folder: keys, tokens, password stores and browser profiles."""

TEMPORARY = (Path(tempfile.gettempdir()), Path("/var/tmp"))  # noqa: S108 - the folder itself is what is granted
"""Where commands may put temporary files. Looked up once, since that blocks."""


def default_confinement(
    workspace: Path,
    *,
    home: Path,
    store: Iterable[Path],
    writable: Iterable[Path] = (),
    hidden: Iterable[Path] = (),
    network: bool = False,
    required: bool = False,
) -> Confinement:
    """Writes in the workspace and the temporary folders only; the store and the person's credentials out of sight.

    Args:
        workspace: The folder that the agent works in.
        home: The person's home folder.
        store: Folders and files in which approvals and runs are kept: what could forge an approval must not be reachable.
        writable: Further places that the configuration opens for writing.
        hidden: Further places that the configuration hides.
        network: Whether TCP connections are allowed.
        required: Whether to refuse to run where the kernel cannot do all of it.
    """
    return Confinement(
        writable=_texts((workspace, *TEMPORARY, *writable)),
        hidden=_texts((*store, *(home / name for name in CREDENTIALS), *hidden)),
        network=network,
        required=required,
    )


def _texts(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path) for path in paths))
