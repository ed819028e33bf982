"""What every area of the tests shares."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The runtime is asyncio's; LangGraph's own tasks are too."""
    return "asyncio"
