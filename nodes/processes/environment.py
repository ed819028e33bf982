"""What a command may know of the runtime's environment: an allow-list, never the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from checkpoints.redaction import is_secret_name, password_in_url

_NAMES = """
    PATH HOME USER LOGNAME SHELL TERM COLORTERM TMPDIR TZ LANG LANGUAGE
    XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME
    VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT UV_CACHE_DIR PIP_CACHE_DIR
    NVM_DIR NODE_PATH JAVA_HOME GOPATH GOROOT GOMODCACHE GOFLAGS CARGO_HOME RUSTUP_HOME
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy
    PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_INDEX_URL UV_DEFAULT_INDEX
    SOURCE_DATE_EPOCH MAKEFLAGS CI NO_COLOR FORCE_COLOR
"""

ALLOWED = frozenset(_NAMES.split())
"""Names that builds and tests need. Values among them that carry a password are left out all the same."""

_ALLOWED_PREFIX = "LC_"

UNATTENDED = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""Nobody sits at a command's terminal: what would ask must fail at once instead of waiting for its deadline."""


def child_environment(
    source: Mapping[str, str], *, names: Iterable[str] = (), extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment for a command.

    Args:
        source: The runtime's own environment.
        names: Further names that the configuration lets through. A name that looks like a secret is refused even here:
            give its value in `extra` to mean it.
        extra: Variables to set, last word over everything.
    """
    wanted = ALLOWED | set(names)
    passed = {name: value for name, value in source.items() if _may_pass(name, value, wanted)}
    return {"PATH": os.defpath, **passed, **UNATTENDED, **(extra or {})}


def _may_pass(name: str, value: str, wanted: Iterable[str]) -> bool:
    allowed = name in wanted or name.startswith(_ALLOWED_PREFIX)
    return allowed and not is_secret_name(name) and password_in_url(value) is None
