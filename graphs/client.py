"""The Python door: opens a store and a runtime over it, and closes both without leaving anything behind."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from checkpoints.approvals import Approvals, Rules
from checkpoints.artifacts import Artifacts
from checkpoints.clock import Clock, SystemClock
from checkpoints.journal import Journal
from checkpoints.leases import LeaseJudge, hold_owner
from checkpoints.ledger import Ledger
from checkpoints.redaction import Redactor, secret_values
from checkpoints.retention import Retention
from checkpoints.saver import ThreadSaver
from checkpoints.sessions import SandboxSessions
from checkpoints.store import Store, open_store
from graphs.admission import QuoteAuthority
from graphs.agent import build_agent
from graphs.recovery import Recovery
from graphs.runtime import Runtime
from graphs.service import Service
from graphs.settings import Settings, read_settings
from graphs.settlement import Settlement
from nodes.answering import Answering, Endpoint
from nodes.belongings import Belongings
from nodes.configuration import Configuration, load_configuration
from nodes.effects import Effects
from nodes.equipment import Equipment
from nodes.events import Events
from nodes.gate import Gate
from nodes.judging import PolicyJudge
from nodes.mcp.ground import Ground
from nodes.mcp.opening import open_mcp
from nodes.models.chat_models import ChatModels
from nodes.native import Native, Surroundings
from nodes.processes.environment import child_environment
from nodes.processes.kernel import INSTALLED as KERNEL_INSTALLED
from nodes.processes.kernel import KernelSpec
from nodes.processes.processes import Processes
from nodes.processes.registry import Registry
from nodes.processes.scrubbing import Secrets
from nodes.sandbox import Sandboxes
from nodes.tools.catalog import catalog
from nodes.tools.execute import execute_tool
from nodes.tools.files import file_tools
from nodes.tools.outputs import output_tool
from nodes.tools.processes import process_tools
from nodes.tools.python import Kernels
from nodes.tools.tool import Tool

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_equipment(
    settings: Settings, store: Store, *, tools: Sequence[Tool] = (), models: ChatModels | None = None
) -> AsyncIterator[Equipment]:
    """What the nodes work with, over an open store. Every process that it started is gone when the block is left.

    Args:
        settings: Where things are.
        store: An open store.
        tools: Further tools for the agent.
        models: What asks the models; it is closed at the end of the block.
    """
    async with AsyncExitStack() as stack:
        configuration = await asyncio.to_thread(load_configuration, settings.config)
        models = await stack.enter_async_context(models or ChatModels(clock=store.clock))
        secrets = redactor_of(configuration)
        processes = await stack.enter_async_context(Processes(Secrets(secrets)))
        settings.spill.mkdir(mode=0o700, parents=True, exist_ok=True)
        judge = PolicyJudge(Rules(store), protected=(str(settings.home), settings.store), user_file=settings.config)
        artifacts = Artifacts(store, settings.home / "artifacts")
        registry = Registry(processes, store.clock)
        sandboxes = Sandboxes(SandboxSessions(store), settings.sandboxes)
        surroundings = Surroundings(
            environment=lambda: child_environment(os.environ),
            spill=settings.spill,
            confine=lambda workspace: configuration.confinement_for(Path(workspace), Path.home(), settings.kept),
        )
        servers = await stack.enter_async_context(open_mcp(configuration, processes, mcp_ground(settings)))
        kernels = Kernels(processes, lambda workspace: kernel_spec(surroundings, workspace), sandboxes)
        stack.push_async_callback(kernels.close)
        python = [kernels.tool()] if KERNEL_INSTALLED else []
        commands = [execute_tool(), output_tool(artifacts), *process_tools(registry, store.clock)]
        offered = [*commands, *python, *file_tools(), *servers, *tools]
        gate = Gate(catalog=catalog(offered), judge=judge, confine=surroundings.confine)
        journal = Journal(store)
        effects = Effects(journal, secrets)
        events = Events()
        native = Native(gate, effects, events, processes, registry, sandboxes, surroundings, artifacts)
        endpoint = Endpoint(
            model=settings.model, base_url=settings.base_url, key_name=settings.key_name, chain=configuration.chain()
        )
        yield Equipment(
            gate=gate,
            judge=judge,
            answering=Answering(endpoint, models, store.clock),
            events=events,
            journal=journal,
            effects=effects,
            native=native,
            belongings=Belongings(native, registry, kernels),
            sandboxes=sandboxes,
            artifacts=artifacts,
            limits=configuration.limits.model_dump(exclude_none=True),
        )


def redactor_of(configuration: Configuration) -> Redactor:
    """Knows every secret of this process: values of secret-looking names, and of the variables that hold models' keys."""
    keys = {spec.api_key_env for spec in configuration.models.chain if spec.api_key_env}
    return Redactor(secret_values(os.environ) | {os.environ[name] for name in keys if name in os.environ})


def mcp_ground(settings: Settings) -> Ground:
    """What MCP servers are started with: a folder of their own, the allow-list of the environment, no sight of the store."""
    folder = settings.sandboxes / "mcp"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Ground(
        folder=folder,
        home=Path.home(),
        store=settings.kept,
        spill=settings.spill,
        environment=os.environ,
        note=logger.warning,
        listings=settings.home / "mcp",
    )


def kernel_spec(surroundings: Surroundings, workspace: str) -> KernelSpec:
    """How a Python kernel is started in a workspace: under what every command is under."""
    return KernelSpec(cwd=workspace, env=surroundings.environment(), confinement=surroundings.confine(workspace))


@asynccontextmanager
async def open_checkrein(
    store: str = "",
    *,
    settings: Settings | None = None,
    tools: Sequence[Tool] = (),
    models: ChatModels | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Service]:
    """Opens everything and gives the verbs; on the way out cancels what still runs and waits for it.

    Args:
        store: Path or URL of the store; the user's state folder by default.
        settings: What the environment would say otherwise.
        tools: Further tools for the agent.
        models: What asks the models, where it is not the usual; closed on the way out.
        clock: Where time comes from.

    Raises:
        StoreError, StateFolderError: The store or the state folder cannot be used; the sentence says why.
    """
    chosen = settings or read_settings(store)
    key = await asyncio.to_thread(chosen.grant_key)
    time = clock or SystemClock()
    redact = redactor_of(await asyncio.to_thread(load_configuration, chosen.config)).text
    async with (
        open_store(chosen.store, clock=time, redact=redact) as opened,
        hold_owner(opened) as owner_id,
        open_equipment(chosen, opened, tools=tools, models=models) as equipment,
    ):
        saver = ThreadSaver(opened)
        agent = build_agent(equipment, saver)
        ledger, approvals = Ledger(opened), Approvals(opened)
        settlement = Settlement(ledger, approvals, equipment.belongings, equipment.answering, time)
        runtime = Runtime(
            agent=agent,
            ledger=ledger,
            approvals=approvals,
            owner_id=owner_id,
            authority=QuoteAuthority(key, time),
            settlement=settlement,
            events=equipment.events,
            sandboxes=equipment.sandboxes,
            limits=equipment.limits,
            kept=chosen.kept,
            clock=time,
        )
        recovery = Recovery(
            runtime=runtime,
            ledger=ledger,
            approvals=approvals,
            journal=equipment.journal,
            judge=LeaseJudge(opened),
            sandboxes=equipment.sandboxes,
            clock=time,
        )
        try:
            yield Service(
                runtime=runtime,
                agent=agent,
                store=opened,
                ledger=ledger,
                approvals=approvals,
                gate=equipment.gate,
                judge=equipment.judge,
                recovery=recovery,
                sandboxes=equipment.sandboxes,
                belongings=equipment.belongings,
                retention=Retention(opened, saver, equipment.artifacts),
            )
        finally:
            await runtime.close()
