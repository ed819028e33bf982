"""What `doctor` says about the configuration: files, rules left out, confinement, MCP servers, extras. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from checkpoints.backends import SCHEMES
from graphs.finding import Finding
from graphs.settings import Settings
from nodes.configuration import Configuration, ConfigurationFileError, ignored_in, load_configuration
from nodes.confining import held_by
from nodes.policy.files import PolicyFileError, load_policy, user_file

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "postgresql": ("psycopg", "psycopg_pool"),
    "mcp": ("mcp", "langchain_mcp_adapters"),
    "kernel": ("ipykernel", "jupyter_client"),
}
"""What has to be importable for an extra to count as installed."""


def configured(settings: Settings, workspace: Path, kernel: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings, one after the other. Blocks: run it in a thread.

    Args:
        settings: Where the user's file is.
        workspace: The folder that the tools would act in.
        kernel: What the machine can do, as `Processes.containment` says; empty when nobody knows.
    """
    file = settings.config or user_file()
    try:
        configuration = load_configuration(file)
    except ConfigurationFileError as error:
        yield Finding(check="configuration", level="fail", text=str(error), advice=error.hint)
    else:
        there = "is in force" if file.exists() else "is not there, so the defaults hold"
        yield Finding(check="configuration", level="ok", text=f"{file} {there}")
        yield _confinement(configuration, settings, workspace, kernel)
        yield _servers(configuration)
    yield from _policy(settings, workspace)
    yield _extras(settings)


def _policy(settings: Settings, workspace: Path) -> Iterator[Finding]:
    """The rules of both files, and what of the workspace's own does not count."""
    try:
        policy = load_policy(str(workspace), protected=tuple(map(str, settings.kept)), user=settings.config)
    except PolicyFileError as error:
        yield Finding(check="policy", level="fail", text=str(error), advice=error.hint)
        return
    yield Finding(check="policy", level="ok", text=f"{len(policy.rules)} rules are in force in {workspace}")
    advice = "Read that file before you trust it; what is denied or asked about there holds in any case."
    for note in (*policy.notes, *ignored_in(str(workspace))):
        yield Finding(check="policy", level="warn", text=note, advice=advice)


def _confinement(configuration: Configuration, settings: Settings, workspace: Path, kernel: Mapping[str, Any]) -> Finding:
    """What a command in the workspace would run under, in the words that an approval shows."""
    wanted = configuration.confinement_for(workspace, Path.home(), settings.kept)
    text = held_by(wanted).removeprefix("confinement: ")
    if wanted is None:
        advice = "Remove `enabled = false` from [confinement] in your file, unless something else confines commands."
        return Finding(check="confinement", level="warn", text=text, advice=advice)
    able: Mapping[str, bool] = kernel.get("confinement", {})
    lacking = [name for name, has in able.items() if not has]
    if lacking or "BUT " in text:
        advice = "Use a kernel with Landlock (files since Linux 5.13, TCP since 6.7), and a workspace without hidden places."
        missing = f"; this kernel cannot confine {' and '.join(lacking)}" if lacking else ""
        return Finding(check="confinement", level="warn", text=text + missing, advice=advice)
    return Finding(check="confinement", level="ok", text=text)


def _servers(configuration: Configuration) -> Finding:
    servers = configuration.servers()
    if not servers:
        return Finding(check="mcp servers", level="ok", text="none is configured")
    text = f"configured: {', '.join(servers)} (not started here)"
    if not _installed("mcp"):
        advice = "Install the extra: pip install 'checkrein[mcp]'."
        return Finding(check="mcp servers", level="fail", text=f"{text}, and the client is not installed", advice=advice)
    return Finding(check="mcp servers", level="ok", text=text)


def _extras(settings: Settings) -> Finding:
    have = [name for name in EXTRAS if _installed(name)]
    lack = [name for name in EXTRAS if name not in have]
    text = f"installed: {', '.join(have) or 'none'}" + (f"; not installed: {', '.join(lack)}" if lack else "")
    if settings.store.startswith(SCHEMES) and "postgresql" in lack:
        advice = "Install the extra: pip install 'checkrein[postgresql]'."
        return Finding(check="extras", level="fail", text=f"{text}; the store needs postgresql", advice=advice)
    return Finding(check="extras", level="ok", text=text)


def _installed(extra: str) -> bool:
    return all(find_spec(module) is not None for module in EXTRAS[extra])
