"""What the verbs refuse, each refusal with its own reason. Nothing was started and nothing was changed."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoints.errors import UsageError


class TaskError(UsageError):
    """The task itself cannot be taken: it is empty or too long."""

    code = "task"


class UnknownThreadError(UsageError):
    """There is no such thread or run in this store."""

    code = "unknown_thread"
    hint = "`checkrein list` shows what there is; `--store` names another store."

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"There is no thread or run {name!r} in this store.")


class AmbiguousNameError(UsageError):
    """A shortened id is the beginning of several."""

    code = "ambiguous_name"
    hint = "Give more of it."

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"Several ids begin with {name!r}.")


class AnswerError(UsageError):
    """The decisions do not fit what was asked. The approval stays pending; send a corrected answer."""

    code = "answer"
    hint = "Nothing was stored and nothing ran; the approval still waits."

    def __init__(self, thread_id: str, faults: Sequence[str]) -> None:
        self.thread_id = thread_id
        self.faults = tuple(faults)
        super().__init__(f"The decisions for thread {thread_id} do not fit: {' '.join(faults)}")


class UnknownRuleError(UsageError):
    """There is no standing permission of this id in force."""

    code = "unknown_rule"
    hint = "`checkrein rules list` shows those in force."

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"There is no rule {name!r} in force.")


class UnknownSessionError(UsageError):
    """There is no sandbox session of this id or key."""

    code = "unknown_session"
    hint = "`checkrein sessions list` shows which there are."

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"There is no sandbox session {name!r}.")
