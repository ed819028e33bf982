"""`checkrein model`: a script file as an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path

from graphs.cli.desk import Desk, OptionError
from graphs.cli.exits import Exit
from nodes.models.script import Script
from nodes.models.scripted import ScriptedModel


async def model(desk: Desk) -> Exit:
    """Serves until a signal ends the command.

    Raises:
        ScriptError: The file cannot be used.
        OptionError: The port is taken.
    """
    args = desk.args
    script = await asyncio.to_thread(Script.load, args.file)
    record = Path(args.requests) if args.requests else None
    server = ScriptedModel(script, port=args.port, strict=args.strict, record=record)
    ended = asyncio.Event()
    try:
        await server.__aenter__()
    except OSError as error:
        raise OptionError(
            "--port", f"port {args.port} cannot be used ({error.strerror})", "Leave it out for a free one."
        ) from error
    try:
        with desk.stops.handled_by(lambda _reason: ended.set()):
            desk.face.rows("serving", [{"base_url": server.base_url, "file": args.file}])
            await ended.wait()
    finally:
        await server.__aexit__()
    return Exit.COMPLETED
