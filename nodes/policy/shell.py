"""The verdict on each part of a shell command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodes.policy.floor import forbidden, forbidden_script, forbidden_write
from nodes.policy.marks import TEXT_ONLY, harmless_variable, marked
from nodes.policy.parsing import parse
from nodes.policy.paths import HARMLESS_DEVICES, Ground, folders_of, stays_inside, targets
from nodes.policy.rules import Rule, strictest
from nodes.policy.script import Assignment, Command, Redirection, Script, Word
from nodes.policy.unwrapping import unwrap
from nodes.policy.verdict import Decision, Part, Stage

WRITE_TOOL, READ_TOOL = "write_file", "read_file"
"""A redirection is judged as a call of these tools on its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What one command is judged by.

    Attributes:
        tool: The tool that would run it.
        rules: All rules in force, grants included.
        ground: The folders.
        marks: Whether harmless parts run unasked (auto mode).
    """

    tool: str
    rules: Sequence[Rule]
    ground: Ground
    marks: bool


def normal_form(text: str) -> Script:
    """What a command line would do, wrappers opened: the form that rules, marks, the floor and the display read."""
    return unwrap(parse(text))


def judge_command(text: str, bench: Bench) -> tuple[Part, ...]:
    """Every part of a command line with its own verdict; at least one."""
    script = normal_form(text)
    folders = folders_of(script, bench.ground)
    parts = list(_whole(text, script))
    parts += [part for command in script.commands if (part := _command(command, folders, bench)) is not None]
    parts += [_redirection(item, folders, bench) for item in script.redirections]
    parts += [_assignment(item, bench) for item in script.assignments]
    parts += [_ask(sentence, f"{sentence} cannot be judged") for sentence in script.doubts]
    return tuple(parts) or (_ask(text, "nothing in it could be judged"),)


def floor_part(text: str, reason: str) -> Part:
    """A part that never runs."""
    return Part(text=text, decision=Decision.DENY, stage=Stage.FLOOR, rule="hard floor", reason=f"never allowed: {reason}")


def ruled_part(text: str, rule: Rule, words: tuple[str, ...] = ()) -> Part:
    """A part that a rule spoke of."""
    stages = {Decision.DENY: Stage.DENY_RULE, Decision.ALLOW: Stage.ALLOW_RULE, Decision.ASK: Stage.ASK}
    reason = rule.reason or f"a rule says {rule.decision.value}"
    return Part(
        text=text,
        decision=rule.decision,
        stage=stages[rule.decision],
        rule=rule.describe(),
        reason=reason,
        grantable=rule.decision is not Decision.DENY and bool(words),
        words=words,
    )


def _whole(text: str, script: Script) -> Iterator[Part]:
    reason = forbidden_script(script)
    if reason:
        yield floor_part(text, reason)


def _command(command: Command, folders: tuple[str, ...], bench: Bench) -> Part | None:
    reason = forbidden(command, folders, bench.ground)
    if reason:
        return floor_part(command.text(), reason)
    words = command.normal()
    spoken = [rule for rule in bench.rules if _speaks(rule, command, words, bench)]
    rule = strictest([*spoken, *_path_rules(command, folders, bench)])
    if not command.certain:
        return ruled_part(command.text(), rule) if rule is not None and rule.decision is Decision.DENY else None
    if rule is not None:
        return ruled_part(command.text(), rule, words if _is_certain(command) else ())
    mark = marked(command, folders, bench.ground) if bench.marks else ""
    if mark:
        return _allow(command.text(), mark)
    if not command.name:
        return _ask(command.text(), "which command this is will only be known when it runs")
    return _ask(command.text(), "no rule allows it", words if _is_certain(command) else ())


def _path_rules(command: Command, folders: tuple[str, ...], bench: Bench) -> Iterator[Rule]:
    """Rules against a file that a command names: whoever keeps a file from the file tools means the shell too."""
    if command.name in TEXT_ONLY:
        return
    against = [rule for rule in bench.rules if rule.path is not None and rule.decision is not Decision.ALLOW]
    for word in command.arguments if against else ():
        plain = Word(text=word.text.partition("=")[2] if word.text.startswith("-") else word.text, dynamic=word.dynamic)
        for real in targets(plain, folders, bench.ground):
            path = bench.ground.relative(real)
            yield from (rule for rule in against if any(rule.matches_path(tool, path) for tool in (READ_TOOL, WRITE_TOOL)))


def _speaks(rule: Rule, command: Command, words: tuple[str, ...], bench: Bench) -> bool:
    """A rule that allows speaks only of the program that everybody means by the name, and never of an unknown one."""
    if not rule.matches_command(bench.tool, words):
        return False
    if rule.decision is not Decision.ALLOW:
        return True
    if rule.exact:
        return _is_certain(command)
    return bool(command.name) and command.named_plainly


def _is_certain(command: Command) -> bool:
    """Whether the words are what will run, letter by letter: a variable or a pattern may stand for anything."""
    return not any(word.dynamic or word.glob for word in command.words)


def _redirection(item: Redirection, folders: tuple[str, ...], bench: Bench) -> Part:
    text = f"{'write' if item.writes else 'read'} {item.target.quoted()}"
    if item.target.dynamic or item.target.glob:
        reason = forbidden_write(item.target, folders, bench.ground) if item.writes else ""
        return floor_part(text, reason) if reason else _ask(text, "which file this is will only be known when it runs")
    if item.target.text in HARMLESS_DEVICES:
        return _allow(text, "harmless device")
    reason = forbidden_write(item.target, folders, bench.ground) if item.writes else ""
    if reason:
        return floor_part(text, reason)
    return _file(text, item, folders, bench)


def _file(text: str, item: Redirection, folders: tuple[str, ...], bench: Bench) -> Part:
    tool = WRITE_TOOL if item.writes else READ_TOOL
    inside = stays_inside(item.target, folders, bench.ground)
    found = []
    for real in targets(item.target, folders, bench.ground):
        path = bench.ground.relative(real)
        rule = strictest(rule for rule in bench.rules if rule.matches_path(tool, path) or rule.matches_call(tool))
        if rule is None or (rule.decision is Decision.ALLOW and not bench.ground.inside(real) and rule.path is None):
            allowed = not item.writes and inside and bench.marks
            found.append(_allow(text, "reads inside the workspace") if allowed else _ask(text, _why(item, inside=inside)))
        else:
            found.append(ruled_part(text, rule))
    return worst(found)


def _why(item: Redirection, *, inside: bool) -> str:
    if not inside:
        return "the file lies outside the workspace"
    return "it writes a file and no rule allows that" if item.writes else "no rule allows it"


def _assignment(item: Assignment, bench: Bench) -> Part:
    text = f"{item.name}={item.value.quoted()}"
    words = (f"{item.name}={item.value.text}",)
    rule = strictest(rule for rule in bench.rules if rule.matches_command(bench.tool, words))
    if rule is not None:
        return ruled_part(text, rule, words)
    if bench.marks and harmless_variable(item.name, exported=item.exported):
        return _allow(text, "a variable that no program looks at")
    return _ask(text, "a variable that can change what programs do", () if item.value.dynamic else words)


def worst(parts: Sequence[Part]) -> Part:
    """The part that decides: a floor before a deny rule before an ask before an allow; the first of its kind."""
    order = {Decision.DENY: 0, Decision.ASK: 1, Decision.ALLOW: 2}
    return min(parts, key=lambda part: (part.stage is not Stage.FLOOR, order[part.decision]))


def _allow(text: str, mark: str) -> Part:
    return Part(text=text, decision=Decision.ALLOW, stage=Stage.MARK, rule=f"mark: {mark}", reason=mark)


def _ask(text: str, reason: str, words: tuple[str, ...] = ()) -> Part:
    return Part(text=text, decision=Decision.ASK, stage=Stage.ASK, rule="", reason=reason, grantable=bool(words), words=words)
