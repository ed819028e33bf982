"""Looks at what Checkrein needs on this machine and says what to do about what is missing. Changes nothing that lasts."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from checkpoints.backends import SCHEMES
from checkpoints.errors import CheckreinError
from checkpoints.migrations import known_version
from graphs.finding import Finding
from graphs.grounds import StoreInWorkspaceError, keep_apart
from graphs.settings import API_KEYS, BASE_URL, MODEL, Settings
from graphs.surroundings import configured
from nodes.models.redact import Redactor
from nodes.processes.processes import Processes

PYTHON = (3, 11)
SQLITE = (3, 35, 0)
"""RETURNING, which every write of the ledger uses, came with 3.35."""

LOW_SPACE = 256 * 1024 * 1024
"""Bytes free below which the store's folder is worth a warning."""

ENDPOINT_SECONDS = 10.0

_REFUSALS = {
    401: ("refuses the key", "Set the right one in {key}."),
    403: ("forbids the use of this key", "Ask the service's owner for access."),
    404: ("has no list of models", "Correct the base URL: it usually ends in /v1."),
}


async def examine(
    settings: Settings, *, workspace: Path, environment: Mapping[str, str] = os.environ
) -> AsyncGenerator[Finding, None]:
    """Everything, one finding after the other; none depends on another.

    Args:
        settings: Where the store is and which endpoint is asked.
        workspace: The folder that the tools would act in.
        environment: Where the endpoint's key is.
    """
    yield _python()
    yield _sqlite()
    yield await asyncio.to_thread(_workspace, settings, workspace)
    if settings.store.startswith(SCHEMES):
        yield _store_server()
    else:
        yield await asyncio.to_thread(_store_folder, settings)
        yield await asyncio.to_thread(_store_file, settings)
    yield await _endpoint(settings, environment)
    async with Processes() as processes:
        report, findings = await _containment(processes)
    for finding in (*findings, *await asyncio.to_thread(_listed, settings, workspace, report)):
        yield finding
    for program in ("git", "rg"):
        yield _program(program)


def _python() -> Finding:
    found = sys.version.split()[0]
    if sys.version_info < PYTHON:
        return Finding(check="python", level="fail", text=f"Python {found}", advice="Install Python 3.11 or later.")
    return Finding(check="python", level="ok", text=f"Python {found}")


def _sqlite() -> Finding:
    found = sqlite3.sqlite_version
    with sqlite3.connect(":memory:") as connection:
        options = {row[0] for row in connection.execute("PRAGMA compile_options")}
    connection.close()
    if sqlite3.sqlite_version_info < SQLITE:
        advice = "Install a Python that is built with SQLite 3.35 or later."
        return Finding(check="sqlite", level="fail", text=f"SQLite {found}", advice=advice)
    if "THREADSAFE=0" in options or "OMIT_WAL" in options:
        advice = "Install a Python whose SQLite is built with threads and write-ahead log."
        return Finding(check="sqlite", level="fail", text=f"SQLite {found} without threads or write-ahead log", advice=advice)
    return Finding(check="sqlite", level="ok", text=f"SQLite {found} with write-ahead log")


def _listed(settings: Settings, workspace: Path, report: Mapping[str, Any]) -> tuple[Finding, ...]:
    return tuple(configured(settings, workspace, report))


def _workspace(settings: Settings, workspace: Path) -> Finding:
    """By the rule that refuses a run."""
    try:
        keep_apart(workspace, settings.kept)
    except StoreInWorkspaceError as error:
        return Finding(check="workspace", level="fail", text=str(error), advice=error.hint)
    return Finding(check="workspace", level="ok", text=f"{workspace} lies apart from the store")


def _store_folder(settings: Settings) -> Finding:
    folder = Path(settings.store).absolute().parent
    place = folder
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        advice = "Make it writable for this user, or name another store with --store."
        return Finding(check="store folder", level="fail", text=f"{place} cannot be written: {error.strerror}", advice=advice)
    free = shutil.disk_usage(place).free
    if free < LOW_SPACE:
        advice = "Free some space; a full disk stops every run."
        return Finding(check="store folder", level="warn", text=f"{folder} has {free // 2**20} MB left", advice=advice)
    return Finding(
        check="store folder", level="ok", text=f"{folder} is writable" if place == folder else f"{folder} can be made"
    )


def _store_server() -> Finding:
    text = "a PostgreSQL server, which is not connected to here, since connecting would migrate it"
    return Finding(
        check="store", level="warn", text=text, advice="`checkrein list` connects, and says what is wrong if it cannot."
    )


def _store_file(settings: Settings) -> Finding:
    path = Path(settings.store)
    if not path.exists():
        return Finding(check="store", level="ok", text=f"{path} will be made by the first run")
    advice = "Name another store with --store, or restore a backup of this one."
    try:
        version = _version_of(path)
    except (sqlite3.Error, ValueError, TypeError) as error:
        return Finding(check="store", level="fail", text=f"{path} is not a readable store: {error}", advice=advice)
    newest = known_version("sqlite")
    if version > newest:
        text = f"{path} has version {version}; this program knows versions up to {newest}"
        return Finding(check="store", level="fail", text=text, advice="Upgrade Checkrein.")
    if not os.access(path, os.W_OK):
        return Finding(check="store", level="fail", text=f"{path} is read-only", advice="Make it writable for this user.")
    return Finding(check="store", level="ok", text=f"{path} has version {version}")


def _version_of(path: Path) -> int:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2.0)
    try:
        rows = connection.execute("SELECT value FROM store_info WHERE name = 'version'").fetchall()
    finally:
        connection.close()
    return int(rows[0][0]) if rows else 0


async def _endpoint(settings: Settings, environment: Mapping[str, str]) -> Finding:
    if not settings.base_url:
        advice = f"Set {BASE_URL} and {MODEL}, or give --base-url and --model. `checkrein demo` and --script work without."
        return Finding(check="model endpoint", level="warn", text="none is configured", advice=advice)
    key = environment.get(settings.key_name, "").strip() if settings.key_name else ""
    where = Redactor([key] if key else []).text(settings.base_url)
    try:
        status, names = await _models(settings.base_url, key)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        text = f"{where} cannot be reached: {str(error) or 'no answer in time'}"
        return Finding(check="model endpoint", level="fail", text=text, advice="Start the service, or correct the base URL.")
    if status != 200:
        text, advice = _REFUSALS.get(
            status, ("did not answer as a model endpoint", "Correct the base URL, or look at the service's log.")
        )
        advice = advice.format(key=settings.key_name or API_KEYS[0])
        return Finding(check="model endpoint", level="fail", text=f"{where} {text} (HTTP {status})", advice=advice)
    if settings.model and names and settings.model not in names:
        text = f"{where} does not list the model {settings.model}"
        shown = ", ".join(sorted(names)[:10])
        return Finding(check="model endpoint", level="fail", text=text, advice=f"Choose one that it has: {shown}.")
    return Finding(
        check="model endpoint", level="ok", text=f"{where} answers" + (f" and has {settings.model}" if names else "")
    )


async def _models(base_url: str, key: str) -> tuple[int, set[str]]:
    """The status of the list of models, and the names in it; a service that lists none in the usual form has no names."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=ENDPOINT_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"{base_url.rstrip('/')}/models", headers=headers, allow_redirects=False) as response,
    ):
        if response.status != 200 or response.content_type != "application/json":
            return response.status, set()
        body = await response.json()
    listed = body.get("data", []) if isinstance(body, dict) else []
    return 200, {str(entry.get("id")) for entry in listed if isinstance(entry, dict)}


async def _containment(processes: Processes) -> tuple[Mapping[str, Any], list[Finding]]:
    """What the machine says of itself, and how that is to be read."""
    try:
        report = await processes.containment()
    except CheckreinError as error:
        return {}, [Finding(check="containment", level="fail", text=str(error), advice=error.hint)]
    return report, _read(report)


def _read(report: Mapping[str, Any]) -> list[Finding]:
    default, missing = str(report["default"]), report["missing"]
    text = f"commands run under the rung `{default}`; there are {', '.join(report['rungs'])}"
    if default == "best_effort":
        advice = "Run on Linux for proof that no process is left; here, what was seen being started is killed."
        return [Finding(check="containment", level="warn", text=text, advice=advice)]
    findings = [Finding(check="containment", level="ok", text=text)]
    if default == "reap":
        advice = "A kernel with Landlock ABI 6 (Linux 6.12) also keeps a command from killing its guard."
        findings = [Finding(check="containment", level="warn", text=f"{text}; {missing.get('scoped', '')}", advice=advice)]
    if not report["pidfd"]:
        advice = "Linux 5.3 or later has them; older kernels are watched with pids, which are reused."
        findings.append(Finding(check="process handles", level="warn", text="no pidfd", advice=advice))
    return findings


def _program(name: str) -> Finding:
    found = shutil.which(name)
    if found:
        return Finding(check=name, level="ok", text=found)
    advice = f"Checkrein does not need {name}, but agents ask for it often: install it."
    return Finding(check=name, level="warn", text="is not installed", advice=advice)
