"""The user's configuration file, apart from the policy's tables in it: confinement, models, MCP servers, limits.

    [confinement]                     # what an agent's commands may touch
    enabled = true
    network = false                   # TCP connections
    writable = ["~/.cache/pip"]       # besides the workspace and the temporary folders
    hidden = ["~/letters"]            # besides the store and the usual places of credentials
    required = false                  # refuse to run where the kernel cannot do all of it

    [[models.chain]]                  # the first is asked; the others are fallbacks, in this order
    model = "gpt-5-mini"
    base_url = "https://api.openai.com/v1"
    api_key_env = "OPENAI_API_KEY"

    [mcp.servers.issues]              # tools of other programs, named mcp__issues__...
    command = ["issue-server", "--stdio"]
    env_names = ["ISSUES_TOKEN"]
    effects = {search = "none"}       # every other tool has an effect, whatever the server says of it

    [limits]
    max_turns = 50

Only the user's own file counts. A workspace's file came with the repository, so an attacker may have written it: these tables
in it are ignored, and `ignored_in` says so.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from yarl import URL

from checkpoints.errors import UsageError
from nodes.models.spec import ModelChain, ModelSpec
from nodes.policy.files import FILE_NAME, MAX_FILE_BYTES, user_file
from nodes.processes.confinement import default_confinement
from nodes.processes.spec import Confinement
from nodes.toml_places import line_of
from nodes.workspace.errors import WorkspaceError
from nodes.workspace.workspace import Workspace

TABLES = ("confinement", "models", "mcp", "limits")
"""The tables that are read here."""

_OF_OTHERS = ("policy",)
_SERVER_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,22}[A-Za-z0-9]|[A-Za-z0-9]")


class ConfigurationFileError(UsageError):
    """The configuration file cannot be read or says something that makes no sense. Nothing runs until it is mended.

    Attributes:
        file: The file.
        line: The line at fault, from 1; 0 when it is the file as a whole.
        problem: What is wrong there.
    """

    code = "configuration_file"
    hint = "Mend the file; its tables and keys are described in the documentation of the configuration."

    def __init__(self, file: str, line: int, problem: str) -> None:
        super().__init__(file, line, problem)
        self.file = file
        self.line = line
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: {self.problem}"


def _absolute(value: str) -> str:
    if not value.startswith(("/", "~/")) or "\0" in value:
        raise ValueError("a path starts with / or ~/")
    return value


def _fit_for_tool_names(value: str) -> str:
    if not _SERVER_NAME.fullmatch(value):
        raise ValueError("a server's name is 1 to 24 letters, digits and - with single _ inside")
    return value


PathText = Annotated[str, AfterValidator(_absolute)]
ServerName = Annotated[str, AfterValidator(_fit_for_tool_names)]
Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConfinementTable(_Table):
    """What commands may touch.

    Attributes:
        enabled: Whether they are confined at all.
        network: Whether they may open TCP connections.
        writable: Paths that they may write, besides workspace and temporary folders; `~/` is the home folder.
        hidden: Paths that they may not even read, besides the store and the usual places of credentials.
        required: Whether to refuse to run where the kernel cannot do all of it.
    """

    enabled: bool = True
    network: bool = False
    writable: tuple[PathText, ...] = ()
    hidden: tuple[PathText, ...] = ()
    required: bool = False

    def within(self, workspace: Path, home: Path, store: Iterable[Path]) -> Confinement | None:
        """The confinement in one workspace; None when it is switched off. See `Configuration.confinement_for`."""
        if not self.enabled:
            return None
        return default_confinement(
            workspace,
            home=home,
            store=store,
            writable=_expanded(self.writable, home),
            hidden=_expanded(self.hidden, home),
            network=self.network,
            required=self.required,
        )


class ModelsTable(_Table):
    """The models, first choice first."""

    chain: tuple[ModelSpec, ...] = ()

    @field_validator("chain", mode="before")
    @classmethod
    def _holds_no_key(cls, value: Any) -> Any:
        entries = value if isinstance(value, list) else []
        if any(isinstance(entry, Mapping) and "api_key" in entry for entry in entries):
            raise ValueError("a key does not belong into a file; name its environment variable as api_key_env")
        return value

    @field_validator("chain")
    @classmethod
    def _names_differ(cls, value: tuple[ModelSpec, ...]) -> tuple[ModelSpec, ...]:
        if value:
            ModelChain(models=value)
        return value


class ServerTable(_Table):
    """One MCP server.

    Attributes:
        command: Program and arguments of a server that speaks over its standard streams.
        url: Address of a server that speaks streamable HTTP. A server has either this or a command.
        env_names: Variables of the runtime's environment that a started server gets besides the usual ones, secrets too: naming
            them here is meaning them.
        effects: What a tool may change, by the server's own name for it. Tools that are not named count as `outside`; what a
            server says of itself is not believed.
        timeout: Seconds that one call may take.
        start_timeout: Seconds until the server has started and listed its tools.
        enabled: Whether it is used at all.
        confinement: What a started server may touch, in place of what commands may.
    """

    command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    url: str = ""
    env_names: tuple[Name, ...] = ()
    effects: Mapping[str, Literal["none", "outside"]] = Field(default_factory=dict)
    timeout: Seconds = 120.0
    start_timeout: Seconds = 30.0
    enabled: bool = True
    confinement: ConfinementTable | None = None

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        url = URL(value)
        if value and (url.scheme not in {"http", "https"} or not url.host):
            raise ValueError("an address starts with http:// or https:// and names a host")
        if url.user or url.password:
            raise ValueError("an address carries no user and no password")
        return value

    @field_validator("effects")
    @classmethod
    def _stays(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        return MappingProxyType(dict(value))

    @model_validator(mode="after")
    def _is_reached_one_way(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("a server has either a command or a url")
        if self.url and (self.env_names or self.confinement):
            raise ValueError("env_names and confinement are for a server that is started; this one has a url")
        return self


class McpTable(_Table):
    """The MCP servers by name."""

    servers: Mapping[ServerName, ServerTable] = Field(default_factory=dict)

    @field_validator("servers")
    @classmethod
    def _stay(cls, value: Mapping[str, ServerTable]) -> Mapping[str, ServerTable]:
        return MappingProxyType(dict(value))


class LimitsTable(_Table):
    """Defaults of a run's limits; None leaves the built-in one.

    Attributes:
        max_turns: Model calls of one task.
        max_tool_calls: Tool calls of one task.
        max_tokens: Tokens of one task, input and output together.
        max_cost: US dollars of one task.
        timeout: Seconds of one run.
        approval_timeout: Seconds that an approval waits before it expires.
    """

    max_turns: Annotated[int, Field(ge=1, le=10_000)] | None = None
    max_tool_calls: Annotated[int, Field(ge=1, le=100_000)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_cost: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    timeout: Seconds | None = None
    approval_timeout: Annotated[float, Field(gt=0, le=366 * 86_400)] | None = None


class Configuration(_Table):
    """What the user's file says, whole and checked. The defaults are those of an empty file."""

    confinement: ConfinementTable = ConfinementTable()
    models: ModelsTable = ModelsTable()
    mcp: McpTable = McpTable()
    limits: LimitsTable = LimitsTable()

    def confinement_for(self, workspace: Path, home: Path, store: Iterable[Path]) -> Confinement | None:
        """What a command in a workspace may touch; None when confinement is switched off.

        Args:
            workspace: The folder that the agent works in.
            home: The person's home folder.
            store: Where approvals and runs are kept: never reachable.
        """
        return self.confinement.within(workspace, home, store)

    def chain(self, default: ModelSpec | None = None) -> ModelChain | None:
        """The models of a run, or None when neither the file nor the caller names one.

        Args:
            default: What the run or the environment asks for. It comes first, with the file's entry of the same name in its
                place if there is one; the file's other models stay fallbacks.
        """
        if default is None:
            return ModelChain(models=self.models.chain) if self.models.chain else None
        first = next((spec for spec in self.models.chain if spec.name == default.name), default)
        return ModelChain.of(first, *(spec for spec in self.models.chain if spec.name != default.name))

    def servers(self) -> Mapping[str, ServerTable]:
        """The MCP servers in use, by name, in the order of the file."""
        return {name: server for name, server in self.mcp.servers.items() if server.enabled}


def load_configuration(file: Path | None = None) -> Configuration:
    """Reads the user's file; the defaults when there is none. Blocks: run it in a thread.

    Args:
        file: Another file than the platform's place for it.

    Raises:
        ConfigurationFileError: The file is there and not right.
    """
    chosen = file or user_file()
    try:
        data = chosen.read_bytes()
    except FileNotFoundError:
        return Configuration()
    except OSError as error:
        raise ConfigurationFileError(str(chosen), 0, f"it cannot be read: {os.strerror(error.errno or 0)}") from error
    return _checked(str(chosen), data)


def ignored_in(workspace: str) -> tuple[str, ...]:
    """What a person should know about the workspace's own file: tables that only the user's file may have. Blocks.

    A file that is no TOML gives no note: the policy, which reads the same file, refuses it.
    """
    try:
        with Workspace(workspace) as folder:
            data = folder.find_bytes(FILE_NAME, MAX_FILE_BYTES)
        content = tomllib.loads((data or b"").decode())
    except (WorkspaceError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return ()
    found = ", ".join(f"[{name}]" for name in TABLES if name in content)
    if not found:
        return ()
    return (f"{found} in this workspace's {FILE_NAME} is ignored: only your own {FILE_NAME} can say that.",)


def _checked(file: str, data: bytes) -> Configuration:
    try:
        text = data.decode().replace("\r\n", "\n")
        content = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ConfigurationFileError(file, data.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise ConfigurationFileError(file, int(line[1]) if line else text.count("\n") + 1, f"not TOML: {error}") from error
    try:
        return Configuration.model_validate({name: value for name, value in content.items() if name not in _OF_OTHERS})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = first["loc"]
        problem = f"{_spelled(place)}: {first['msg'].removeprefix('Value error, ')}"
    raise ConfigurationFileError(file, line_of(text, place), problem)  # unchained: the cause would show values


def _spelled(place: Sequence[str | int]) -> str:
    return ".".join(str(step) for step in place if not isinstance(step, int) and step != "[key]")


def _expanded(paths: Iterable[str], home: Path) -> list[Path]:
    return [home / path[2:] if path.startswith("~/") else Path(path) for path in paths]
