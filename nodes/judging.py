"""The policy of one runtime: configuration files, standing permissions and the terms of a task, put before every call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkpoints.approvals import Rule as StoredRule
from checkpoints.approvals import Rules
from nodes.calls import Call
from nodes.configuration import ignored_in
from nodes.gate import Ruling
from nodes.policy.files import load_policy
from nodes.policy.judge import Policy, Posture, ReviewMode, grants_for
from nodes.policy.rules import Rule
from nodes.policy.verdict import Decision, Verdict
from nodes.state import Admitted


class PolicyJudge:
    """Judges calls by the workspace's and the user's files and by what people granted.

    The files are read for every call, so that a rule holds from the moment that it is saved.
    """

    def __init__(self, rules: Rules, *, protected: Sequence[str], user_file: Path | None = None) -> None:
        self._rules = rules
        self._protected = tuple(protected)
        self._user_file = user_file

    async def __call__(self, call: Call, admitted: Admitted, thread_id: str) -> Ruling:
        """Rules on one call.

        Raises:
            PolicyFileError: A configuration file is there and not right; nothing runs on a guess.
        """
        verdict = await self.verdict(call, admitted, thread_id)
        return Ruling(verdict=verdict.decision.value, reason=f"{verdict.reason}.")

    async def verdict(self, call: Call, admitted: Admitted, thread_id: str) -> Verdict:
        """The policy's whole answer, every part of the call with it."""
        grants = [_granted(rule) for rule in await self._rules.active(thread_id=thread_id)]
        return await asyncio.to_thread(self._judge, call, admitted, grants)

    async def remember(self, call: Call, admitted: Admitted, *, thread_id: str, session: bool, by: str) -> int:
        """Lets exactly this call run unasked from now on, in its thread (`session`) or everywhere.

        Returns:
            How many rules were made; 0 when the call has a part that no rule can name safely.
        """
        verdict = await self.verdict(call, admitted, thread_id)
        made = grants_for(call.tool.name, verdict, "grant")
        for rule in made:
            match = {"command": list(rule.command) if rule.command else None, "path": rule.path}
            await self._rules.allow(rule.tool, match, created_by=by, thread_id=thread_id if session else "")
        return len(made)

    async def notes(self, admitted: Admitted) -> tuple[str, ...]:
        """What a person should know of the workspace's own file: what of it does not count.

        Raises:
            PolicyFileError: A configuration file is there and not right.
        """
        return await asyncio.to_thread(self._notes, admitted["workspace"])

    async def granted(self) -> tuple[StoredRule, ...]:
        """The standing permissions in force, oldest first, of every thread."""
        return await self._rules.active()

    async def revoke(self, rule_id: str) -> bool:
        """Takes a standing permission back; the next such call asks again. False when there is none of this id."""
        return await self._rules.revoke(rule_id)

    def _notes(self, workspace: str) -> tuple[str, ...]:
        return (*self._policy(workspace).notes, *ignored_in(workspace))

    def _policy(self, workspace: str) -> Policy:
        return load_policy(workspace, protected=self._protected, user=self._user_file)

    def _judge(self, call: Call, admitted: Admitted, grants: Sequence[Rule]) -> Verdict:
        args: dict[str, Any] = call.arguments.model_dump(mode="json")
        return self._policy(admitted["workspace"]).judge(call.tool.name, call.tool.effect, args, posture_of(admitted), grants)


def posture_of(admitted: Admitted) -> Posture:
    """Who is there to be asked, by the terms of a task."""
    return Posture(
        mode=ReviewMode(admitted["mode"]),
        finite=admitted["finite"],
        unattended=admitted["unattended"],
        yolo=admitted["yolo"],
    )


def _granted(stored: StoredRule) -> Rule:
    command = stored.match.get("command")
    return Rule(
        decision=Decision.ALLOW,
        tool=stored.tool,
        command=tuple(command) if command else None,
        path=stored.match.get("path"),
        exact=True,
        source=f"grant {stored.rule_id}",
    )
