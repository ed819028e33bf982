"""Long JSON texts in fewer bytes: deflate with a dictionary of what events and results repeat, as base85 in a text column.

A text column stays readable for what is short, needs no other type on either database, and what is long shrinks to about a
half. A squeezed text begins with `~`, which no JSON text does.
"""

from __future__ import annotations

import base64
import zlib

WORTH_IT = 256
"""Characters below which a text is left as it is."""

MARK = "~"

# What payloads repeat. Part of the format: never change it, add another one under another mark.
DICTIONARY = (
    b'{"http_status":200,"committed":true,"estimated":true,"attempt":1,"cause":"","detail":"","seconds":0.0,"status":"completed",'
    b'"usage":{"input_tokens":0,"output_tokens":0,"total_tokens":0},"model":"","purpose":"summary"}'
    b'{"tool_call_id":"call_","name":"execute","args":{"command":"","timeout":120.0,"background":false,"keep":"run"}}'
    b'{"tool_call_id":"call_","text":"","skipped":0}{"content":"","is_error":false,"details":{}}'
    b'{"tool_call_id":"call_","name":"execute","is_error":false,"result":"\\n[exit code 0.]","details":{"reason":"exit",'
    b'"exit_code":0,"killed":0,"leftovers":0,"empty":true,"milliseconds":0.1,"rung":"scoped","confinement":{"writable":["/tmp",'
    b'"/var/tmp"],"hidden":["/.ssh","/.gnupg","/.aws","/.netrc","/.config/"],"network":false,"required":false},'
    b'"output_bytes":0,"spill":""}}'
)


def squeezed(text: str) -> str:
    """The text as it is stored."""
    if len(text) < WORTH_IT:
        return text
    squeezer = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)
    small = MARK + base64.b85encode(squeezer.compress(text.encode()) + squeezer.flush()).decode()
    return small if len(small) < len(text) else text


def grown(stored: str) -> str:
    """What `squeezed` was given."""
    if not stored.startswith(MARK):
        return stored
    grower = zlib.decompressobj(-15, DICTIONARY)
    return (grower.decompress(base64.b85decode(stored[len(MARK) :])) + grower.flush()).decode()
