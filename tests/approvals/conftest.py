"""A home with something to lose in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.approvals.confined import SECRET


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a key, a sibling of the workspace, and a temporary folder that is not above all of them."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text(SECRET)
    (tmp_path / "sibling").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(home))
    # The test's own folder lies below the machine's temporary one, where commands may write.
    monkeypatch.setattr("nodes.processes.confinement.TEMPORARY", (tmp_path / "tmp",))
    return tmp_path
