"""Servers as no library writes them: one misbehaviour each, named by the first argument. Needs the standard library alone."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

BEHAVIOUR = sys.argv[1] if len(sys.argv) > 1 else ""
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


def _say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _tool(name: str, schema: Any = OBJECT, description: str = "") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": schema}


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"allOf": [schema]}
    return schema


def _bomb() -> dict[str, Any]:
    """Each step doubles the work of the next: 2 ** 40 checks in a kilobyte."""
    steps = {f"s{step}": {"allOf": [{"$ref": f"#/$defs/s{step + 1}"}] * 2} for step in range(40)}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/s0"}}, "$defs": {**steps, "s40": {"type": "string"}}}


SCHEMAS = [
    _tool("remote", {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:1/schema"}}}),
    _tool("text", {"type": "string"}),
    _tool("nonsense", {"type": "object", "properties": {"x": {"type": 7}}}),
    _tool("large", {"type": "object", "properties": {"x": {"enum": ["y" * 1000] * 100}}}),
    _tool("deep", {"type": "object", "properties": {"x": _nested(60)}}),
    _tool("circle", {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}}),
    _tool("bomb", _bomb()),
    _tool("pattern", {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}),
    _tool("plain"),
]

TOOLS = {
    "schemas": SCHEMAS,
    "twins": [_tool("same", description="first"), _tool("same", description="second"), _tool("a b"), _tool("a_b"), _tool("")],
    "many": [_tool(f"t{number}") for number in range(300)],
    "moody": [_tool("work", description=os.environ.get("MOOD", ""))],
    "words": [_tool("words", description="Read\u202e this.\x1b[31m" + "x" * 5000)],
}


def _list(number: Any) -> None:
    if BEHAVIOUR == "broken list":
        _say(id=number, result={"tools": [{"name": 3}]})
        return
    _say(id=number, result={"tools": TOOLS.get(BEHAVIOUR, [_tool("work")])})


def _call(number: Any) -> None:
    match BEHAVIOUR:
        case "huge":
            sys.stdout.write("x" * (20 << 20))
            sys.stdout.flush()
        case "gush":
            while True:
                print("not a message")
        case "wrong result":
            _say(id=number, result={"content": 7})
        case "wrong id":
            _say(id="surely \x1b[31m not", result={"content": []})
            _say(id=999, result={"content": []})
            _done(number)
        case "silent":
            time.sleep(60)
        case "separators":
            _say(id=number, result={"content": [{"type": "text", "text": "one\u2028two\u2029three\x85four"}]})
        case "error":
            _say(id=number, error={"code": -32603, "message": "no \x1b[31m way"})
        case _:
            _done(number)


def _done(number: Any) -> None:
    _say(id=number, result={"content": [{"type": "text", "text": "done"}]})


def _chatter() -> None:
    print("Welcome to the server!\n\n{]")
    os.write(1, b"\xff\xfe\x00 no text\n")
    for level in ("info", "loud"):
        _say(method="notifications/message", params={"level": level, "data": "\x1b[31m for your eyes"})
    _say(id="s1", method="sampling/createMessage", params={"messages": [], "maxTokens": 5})
    _say(id="s2", method="no/such/method", params={"text": "\x1b[31m"})


def main() -> None:
    """Answers what comes in, in its way."""
    if BEHAVIOUR == "wrong first":
        _say(id=0, result={"hello": "world"})
    if BEHAVIOUR == "dead":
        print("no licence \x1b[31m found", file=sys.stderr)
        raise SystemExit(4)
    for line in sys.stdin:
        message = json.loads(line)
        if BEHAVIOUR == "mute":
            continue
        if BEHAVIOUR == "chatter" and "method" in message:
            _chatter()
        match message.get("method"):
            case "initialize":
                version = message["params"]["protocolVersion"]
                info = {"name": "hostile", "version": "1"}
                _say(id=message["id"], result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
            case "tools/list":
                _list(message["id"])
                if BEHAVIOUR == "deaf":
                    time.sleep(60)
            case "tools/call":
                _call(message["id"])


if __name__ == "__main__":
    main()
