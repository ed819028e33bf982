"""Keeps secrets out of whatever is stored, sent or logged: by their values, wherever they turn up, and by well-known shapes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

MARK = "[redacted]"

SHORTEST = 8
"""Characters below which a value is left alone: replacing every `admin` would destroy text and protect nothing."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|COOKIE|PRIVATE|_PASS$|_PAT$|_DSN$", re.I)
_ABOUT_A_FILE = re.compile(r"_(FILE|PATH|DIR|HOME|SOCK)$", re.I)
_SHAPES = re.compile(
    r"""
    (?<![A-Za-z0-9])(?:
        sk-[A-Za-z0-9_-]{20,}
      | gh[pousr]_[A-Za-z0-9]{30,}
      | github_pat_[A-Za-z0-9_]{30,}
      | glpat-[A-Za-z0-9_-]{20,}
      | xox[abeoprs]-[A-Za-z0-9-]{10,}
      | A(?:KIA|SIA)[0-9A-Z]{16}
      | AIza[0-9A-Za-z_-]{35}
      | hf_[A-Za-z0-9]{30,}
      | eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}
    )
    | (?<=://)[^\s/:@'"]{1,200}:[^\s/@'"]{1,500}(?=@)
    | -----BEGIN[ ](?:[A-Z]+[ ]){0,3}PRIVATE[ ]KEY-----.{1,20000}?-----END[ ](?:[A-Z]+[ ]){0,3}PRIVATE[ ]KEY-----
    | (?i:(?<=bearer[ ])|(?<=basic[ ]))[A-Za-z0-9._~+/-]{20,}=*
    """,
    re.VERBOSE | re.DOTALL,
)


def is_secret_name(name: str) -> bool:
    """Whether a variable or field of this name is to be treated as a secret. Names of files that hold one are not."""
    return bool(_SECRET_NAME.search(name)) and not _ABOUT_A_FILE.search(name)


def password_in_url(value: str) -> str | None:
    """The password that a URL carries before its host, if it does."""
    try:
        return urlsplit(value).password if "://" in value else None
    except ValueError:
        return None


def secret_values(environment: Mapping[str, str]) -> set[str]:
    """The values in an environment that must not be shown: those of secret-looking names, and passwords inside URLs."""
    found = {value for name, value in environment.items() if is_secret_name(name)}
    found |= {password for value in environment.values() if (password := password_in_url(value))}
    return {value for value in found if len(value) >= SHORTEST}


class Redactor:
    """Replaces secret values in text and in JSON. Immutable, cheap to call, safe to share.

    Attributes:
        forms: The known values in every form that is looked for, longest first.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Knows these values and the forms that quoting, JSON and base64 give them.

        Args:
            values: The secrets. Those shorter than `SHORTEST` are left alone.
        """
        known = {form for value in values if len(value) >= SHORTEST for form in _forms(value)}
        self.forms = tuple(sorted(known, key=lambda form: (-len(form), form)))
        self._values = re.compile("|".join(map(re.escape, self.forms))) if self.forms else None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Redactor:
        """A redactor for everything secret in this environment."""
        return cls(secret_values(environment))

    def text(self, text: str) -> str:
        """The text without secrets. Give it whole lines: a secret that is cut in two is not recognised."""
        if self._values is not None:
            text = self._values.sub(MARK, text)
        return _SHAPES.sub(MARK, text)

    def known(self, value: Any) -> Any:
        """Plain JSON without the known values, and nothing else changed: for texts that have to stay what they are."""
        if self._values is None:
            return value
        if isinstance(value, str):
            return self._values.sub(MARK, value)
        if isinstance(value, Mapping):
            return {self.known(str(key)): self.known(member) for key, member in value.items()}
        return [self.known(member) for member in value] if isinstance(value, list | tuple) else value

    def json(self, value: Any) -> Any:
        """The same for plain JSON: every string in it, keys included, and whole values of secret-looking keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._member(str(key), member) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(member) for member in value]
        return value

    def _member(self, key: str, member: Any) -> Any:
        hidden = isinstance(member, str) and len(member) >= SHORTEST and is_secret_name(key)
        return MARK if hidden else self.json(member)


def _forms(value: str) -> set[str]:
    quoted = json.dumps(value)[1:-1]
    encoded = base64.b64encode(value.encode(errors="surrogateescape")).decode().rstrip("=")
    try:
        url = {quote(value, safe=""), quote(value), unquote(value)}
    except UnicodeEncodeError:
        url = set()
    return {form for form in {value, value.strip(), quoted, encoded, *url} if len(form) >= SHORTEST}
