"""The configuration files that hold rules: the user's and the workspace's, both TOML, both checked to the line.

    [[policy.rules]]
    decision = "allow"                # allow, ask or deny
    tool = "execute"                  # "*" and "?" match; left out: every tool
    command = "npm run test"          # words of a command in normal form, which may go on after them
    # path = "docs/**"                # or a file, relative to the workspace
    # reason = "told to whoever asks" # optional

A workspace's file came with the repository, so an attacker may have written it: it can deny and make ask, and what it allows is
left out, with a note, until the user's file trusts exactly this content of it:

    [[policy.trust]]
    workspace = "/home/me/project"
    digest = "<SHA-256 that the note says>"

Other tables of the same file belong to others and are not looked at here.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from checkpoints.errors import UsageError
from nodes.policy.judge import Policy
from nodes.policy.paths import Ground
from nodes.policy.rules import Rule
from nodes.policy.verdict import Decision
from nodes.toml_places import line_of
from nodes.workspace.errors import PathError, WorkspaceError
from nodes.workspace.workspace import Workspace, digest_of

FILE_NAME = "checkrein.toml"
MAX_FILE_BYTES = 1024 * 1024


class PolicyFileError(UsageError):
    """A configuration file cannot be read or says something that is no rule. Nothing runs until it is mended.

    Attributes:
        file: The file.
        line: The line at fault, from 1; 0 when it is the file as a whole.
        problem: What is wrong there.
    """

    code = "policy_file"
    hint = "Mend the file; the rules and their form are described in the documentation of the policy."

    def __init__(self, file: str, line: int, problem: str) -> None:
        super().__init__(file, line, problem)
        self.file = file
        self.line = line
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: {self.problem}"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _RuleEntry(_Entry):
    decision: Literal["allow", "ask", "deny"]
    tool: str = Field(default="*", min_length=1)
    command: str | None = None
    path: str | None = Field(default=None, min_length=1)
    reason: str = ""

    @field_validator("command")
    @classmethod
    def _has_words(cls, value: str | None) -> str | None:
        if value is not None and not shlex.split(value):
            raise ValueError("a command pattern needs at least one word")
        return value

    @model_validator(mode="after")
    def _names_one_thing(self) -> _RuleEntry:
        if self.command is not None and self.path is not None:
            raise ValueError("a rule speaks of a command or of a path, not of both")
        if self.decision == "allow" and self.tool == "*" and self.command is None and self.path is None:
            raise ValueError("this would allow everything; name a tool, a command or a path")
        return self


class _TrustEntry(_Entry):
    workspace: str = Field(min_length=1)
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")


class _PolicyTable(_Entry):
    rules: tuple[_RuleEntry, ...] = ()
    trust: tuple[_TrustEntry, ...] = ()


def user_file() -> Path:
    """The user's configuration file, in the folder that the platform keeps for such."""
    return Path(platformdirs.user_config_dir("checkrein")) / FILE_NAME


def load_policy(
    workspace: str, *, protected: tuple[str, ...] = (), user: Path | None = None, home: Path | None = None
) -> Policy:
    """The policy for one workspace. Blocks: run it in a thread.

    Args:
        workspace: The workspace folder, absolute.
        protected: What nothing may write: the store. The policy files are added here.
        user: The user's file, where not the platform's.
        home: The home folder, where not the person's.

    Raises:
        PolicyFileError: A file is there and not right.
    """
    file = user or user_file()
    own = _read_user(file)
    ground = Ground(
        workspace=workspace,
        home=str(home or Path.home()),
        protected=(*protected, str(file), os.path.join(workspace, FILE_NAME)),  # noqa: PTH118 -- a text, like its neighbours
    )
    found = _read_workspace(workspace)
    if found is None:
        return Policy(ground=ground, rules=own[0])
    table, rules, digest = found
    if table.trust:
        raise PolicyFileError(FILE_NAME, 0, "a workspace's file cannot say whom to trust")
    if _trusts(own[1], workspace, digest):
        return Policy(ground=ground, rules=(*own[0], *rules))
    kept = tuple(rule for rule in rules if rule.decision is not Decision.ALLOW)
    return Policy(ground=ground, rules=(*own[0], *kept), notes=_notes(len(rules) - len(kept), workspace, digest))


def _notes(left_out: int, workspace: str, digest: str) -> tuple[str, ...]:
    if not left_out:
        return ()
    note = (
        f"{left_out} allow rules of this workspace's {FILE_NAME} were left out, because the file came with the workspace. "
        f'To trust it as it is: [[policy.trust]] workspace = "{workspace}" digest = "{digest}" in your own file.'
    )
    return (note,)


def _trusts(entries: tuple[_TrustEntry, ...], workspace: str, digest: str) -> bool:
    real = os.path.realpath(workspace)
    return any(os.path.realpath(entry.workspace) == real and entry.digest == digest for entry in entries)


def _read_user(file: Path) -> tuple[tuple[Rule, ...], tuple[_TrustEntry, ...]]:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return (), ()
    except OSError as error:
        raise PolicyFileError(str(file), 0, f"it cannot be read: {os.strerror(error.errno or 0)}") from error
    table, rules = _checked(str(file), data)
    return rules, table.trust


def _read_workspace(workspace: str) -> tuple[_PolicyTable, tuple[Rule, ...], str] | None:
    """The workspace's file, reached by handles like everything there: a link that leads out is no policy."""
    try:
        with Workspace(workspace) as folder:
            data = folder.find_bytes(FILE_NAME, MAX_FILE_BYTES)
    except WorkspaceError as error:
        problem = error.problem if isinstance(error, PathError) else str(error)
        raise PolicyFileError(FILE_NAME, 0, problem) from error
    if data is None:
        return None
    return (*_checked(FILE_NAME, data), digest_of(data))


def _checked(file: str, data: bytes) -> tuple[_PolicyTable, tuple[Rule, ...]]:
    try:
        text = data.decode()
        content = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise PolicyFileError(file, data.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise PolicyFileError(file, int(line[1]) if line else text.count("\n") + 1, f"not TOML: {error}") from error
    try:
        table = _PolicyTable.model_validate(content.get("policy", {}))
    except ValidationError as error:
        first = error.errors()[0]
        raise PolicyFileError(file, line_of(text, ("policy", *first["loc"])), _problem(first)) from error
    return table, tuple(
        _rule(entry, f"{file}:{line_of(text, ('policy', 'rules', at))}") for at, entry in enumerate(table.rules)
    )


def _problem(error: Any) -> str:
    place = ".".join(str(step) for step in error["loc"] if not isinstance(step, int))
    return f"{place or 'policy'}: {error['msg'].removeprefix('Value error, ')}"


def _rule(entry: _RuleEntry, source: str) -> Rule:
    command = tuple(shlex.split(entry.command)) if entry.command is not None else None
    return Rule(
        decision=Decision(entry.decision), tool=entry.tool, command=command, path=entry.path, reason=entry.reason, source=source
    )
