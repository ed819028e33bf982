"""The parser against the shell itself: whatever bash runs and whatever it writes, the normal form named or doubted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nodes.policy.shell import normal_form

BASH = shutil.which("bash")
PROBES = ("pa", "pb", "pc")
pytestmark = pytest.mark.skipif(BASH is None, reason="this machine has no bash to compare with")

WORDS = st.sampled_from(
    [
        "pa",
        "pb",
        "pc",
        "x",
        "'pa'",
        '"pb"',
        "p''a",
        'p"b"',
        "\\pc",
        "$'p\\x61'",
        "-n",
        "a b",
        "#",
        "{",
        "}",
        "!",
        "$(pa)",
        "`pb`",
    ]
)
COMMANDS = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
JOINTS = st.sampled_from([";", "\n", " && ", " || ", " | ", " & ", ";;", " ", "#", "\\\n", " \\\n ", "\t", "\r\n", "\x0b"])
WRAPPERS = st.sampled_from(
    [
        "{line}",
        "( {line} )",
        "{{ {line}; }}",
        "if {line}; then pa; fi",
        "for i in 1; do {line}; done",
        "case x in x) {line};; esac",
        "case {line} in *) pb;; esac",
        "f() {{ {line}; }}; f",
        "echo $({line})",
        'echo "$({line})"',
        "echo `{line}`",
        "cat <({line})",
        "cat <<EOF\n$({line})\nEOF",
        "cat <<EOF\n{line}\nEOF\npa",
        "cat <<'EOF'\n{line}\nEOF\npb",
        "cat <<-E\n\t{line}\n\tE\npc",
        'cat <<E"O"F\n{line}\nEOF\npc',
        "cat <<\\EOF\n{line}\nEOF\npc",
        "cat <<A <<B\n{line}\nA\n{line}\nB\npa",
        "cat <<< {line}",
        "eval '{line}'",
        "bash -c '{line}'",
        "env A=1 {line}",
        "timeout 5 {line}",
        "nice {line}",
        "nohup {line}",
        "command {line}",
        "exec {line}",
        "time {line}",
        "! {line}",
        "echo x | xargs {line}",
        "x=$({line}) pa",
        "[[ -n $({line}) ]] && pb",
        "echo ${{x:-$({line})}}",
        "echo $(( $({line}) + 1 ))",
        "{line} > out1",
        "{line} >> out2 2>&1",
        "> out3 {line}",
        "{line} 2> out4 < /dev/null",
        "{line} &> out5",
        "coproc {line}",
        "'{line}'",
        '"{line}"',
        "# {line}\npa",
        "{line} # pb",
        "while {line}; do break; done",
        "trap '{line}' EXIT",
        "pa|&{line}",
        "pa&{line}",
        "echo >({line})",
        "function f {{ {line}; }}\nf",
        "[[ x == $({line})* ]]",
        "[[ x =~ ^$({line})$ ]]",
        "a=(x $({line}) y)",
        "a[$({line})]=1",
        'echo "${{x:-`{line}`}}"',
        "echo ${{x/x/$({line})}}",
        "until {line}; do break; done",
        "for ((i=$({line});i<1;i++)); do pa; done",
        "case x in $({line})|x) pb;; esac",
        "if pa; then {line}; elif pb; then :; else {line}; fi",
        "export A=$({line})",
        "{line} >| out6",
        "{line} <> out7",
        "{line} >out8 pa",
        "{line} >& out9",
        "echo 'x'{line}",
        "echo x;{line}",
        "echo \\\n{line}",
        'sh -c "{line}"',
        "pa\n\n{line}\n",
        "find . -maxdepth 0 -exec {line} \\;",
    ]
)


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """Lines nested in constructs and joined to each other, sensible or not."""
    pieces = []
    for _ in range(draw(st.integers(1, 3))):
        line = draw(COMMANDS)
        for _ in range(draw(st.integers(0, 2))):
            line = draw(WRAPPERS).format(line=line)
        pieces += [line, draw(JOINTS)]
    return "".join(pieces[:-1])


SOUP = st.lists(
    st.sampled_from(
        ["pa", "pb", "pc", "x", "A=1", *" \n\t;&|(){}$`'\"<>#=![]*?\\", "<<E", "\nE\n", "$(", "${", "<(", "&&", "||"]
    ),
    min_size=2,
    max_size=14,
).map("".join)


@pytest.fixture(scope="module")
def probes() -> Iterator[Path]:
    """Programs that only say that they ran, and the few real ones that the constructs need."""
    with tempfile.TemporaryDirectory() as folder:
        for name in PROBES:
            stub = Path(folder, name)
            stub.write_text(f'#!{BASH}\necho {name} >> "$PROBED"\n')
            stub.chmod(0o755)
        for name in ("bash", "cat", "env", "timeout", "nice", "nohup", "sh", "xargs", "find"):
            Path(folder, name).symlink_to(shutil.which(name) or "/nonexistent")
        yield Path(folder)


def run(text: str, probes: Path, folder: Path) -> set[str]:
    log = folder / ".log"
    log.touch()
    place = folder / "here"
    place.mkdir()
    with subprocess.Popen(
        [str(BASH), "-c", text],
        cwd=place,
        env={"PATH": str(probes), "PROBED": str(log)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as shell:
        with suppress(subprocess.TimeoutExpired):  # a line that waits for itself has said enough
            shell.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    return set(log.read_text().split())


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.one_of(scripts(), SOUP))
@example(text='cat <<E"O"F\nx\nEOF\npa\nE"O"F')
@example(text='echo "`echo \\`pa\\``"')
@example(text="p\\\na")
@example(text="case x in x) pa;; esac")
def test_whatever_bash_runs_or_writes_was_named_or_doubted(text: str, probes: Path) -> None:
    """S28, S29, S30: the parser may see more than the shell does, never less."""
    script = normal_form(text)
    named = {command.name for command in script.commands}
    targets = [item.target for item in script.redirections if item.writes]
    if script.doubts or "" in named or any(target.dynamic or target.glob for target in targets):
        return
    with tempfile.TemporaryDirectory() as folder:
        ran = run(text, probes, Path(folder))
        made = {entry.name for entry in Path(folder, "here").iterdir()}
    assert ran <= named
    assert made <= {target.text for target in targets}
