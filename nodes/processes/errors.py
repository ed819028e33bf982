"""What can go wrong with a scope. A command that runs and fails is none of these: that is a verdict."""

from __future__ import annotations

import errno
import os

from checkpoints.errors import CheckreinError


class ProcessesError(CheckreinError):
    """A scope could not be had. Nothing of it is running."""

    code = "process"


class CommandNotFoundError(ProcessesError):
    """No file of this name, neither as a path nor in the child's PATH."""

    code = "command_not_found"
    hint = "Check the name, and the PATH that the command's environment has."

    def __init__(self, program: str) -> None:
        self.program = program
        super().__init__(f"The command {program!r} was not found.")


class InterpreterMissingError(ProcessesError):
    """The program file is there, but what its first line or its loader names is not."""

    code = "interpreter_missing"
    hint = "Install the interpreter that the file's first line names, or run the file with one that exists."

    def __init__(self, program: str) -> None:
        self.program = program
        super().__init__(f"{program!r} exists, but the interpreter or loader that it asks for does not.")


class WorkingFolderError(ProcessesError):
    """The folder to run in is missing, is no folder, or may not be entered."""

    code = "working_folder"
    hint = "Create the folder, or choose another working folder."

    def __init__(self, folder: str, reason: str) -> None:
        self.folder = folder
        self.reason = reason
        super().__init__(f"The working folder {folder!r} cannot be entered: {reason}.")


class NotExecutableError(ProcessesError):
    """The file is there but may not be executed, or is no program."""

    code = "not_executable"
    hint = "Make the file executable, or run it with its interpreter."

    def __init__(self, program: str, reason: str) -> None:
        self.program = program
        self.reason = reason
        super().__init__(f"{program!r} cannot be executed: {reason}.")


class ArgumentsTooLongError(ProcessesError):
    """The kernel takes no argument list and environment of this size."""

    code = "arguments_too_long"
    hint = "Put the long part in a file, or send it as standard input."

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"The arguments and environment take {size} bytes, more than this system accepts.")


class ContainmentUnavailableError(ProcessesError):
    """A containment or confinement that was demanded does not exist here. Nothing ran on a lower rung in its place."""

    code = "containment_unavailable"
    hint = "Ask for containment 'auto', or run on a machine that has it; `checkrein doctor` shows what this one has."

    def __init__(self, wanted: str, reason: str) -> None:
        self.wanted = wanted
        self.reason = reason
        super().__init__(f"The containment {wanted!r} is not available: {reason}.")


class StartFailedError(ProcessesError):
    """The scope could not be started for a reason of the system: out of processes, memory or descriptors."""

    code = "start_failed"
    hint = "Free resources on this machine, then try again."

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The command could not be started: {reason}.")


class StartUnknownError(ProcessesError):
    """The guard vanished before it said whether the command began. Whether it did is unknown."""

    code = "start_unknown"
    hint = "Look at what the command may have done before running it again."

    def __init__(self) -> None:
        super().__init__("The guard of the command ended before it could say whether the command began.")


class SpawnerFailedError(ProcessesError):
    """The fork server does not start, so no command can."""

    code = "spawner_failed"
    hint = "Run `checkrein doctor`; the Python that runs Checkrein must be able to start itself."

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The fork server could not be started: {reason}.")


class ClosedError(ProcessesError):
    """Something was asked of processes that have been closed."""

    code = "processes_closed"
    hint = "Start scopes before the runtime shuts down."

    def __init__(self) -> None:
        super().__init__("The processes of this runtime are closed: nothing can be started.")


def failure_of(stage: str, number: int, text: str, argv: tuple[str, ...], cwd: str, size: int) -> ProcessesError:
    """The error for what a child or its guard said before the command began.

    Args:
        stage: What failed: guard, namespace, scope, confinement, cwd, interpreter or exec.
        number: The errno, or 0.
        text: The words that came with it.
        argv: The command.
        cwd: Its working folder.
        size: Bytes of arguments and environment.
    """
    reason = os.strerror(number) if number else text
    if stage in ("namespace", "scope", "confinement"):
        return ContainmentUnavailableError(stage, text)
    if stage == "cwd":
        return WorkingFolderError(cwd, reason)
    if stage == "interpreter":
        return InterpreterMissingError(argv[0])
    return _exec_failure(stage, number, reason, argv, size)


def _exec_failure(stage: str, number: int, reason: str, argv: tuple[str, ...], size: int) -> ProcessesError:
    if stage == "exec" and number in (errno.ENOENT, errno.ENOTDIR):
        return CommandNotFoundError(argv[0])
    if stage == "exec" and number in (errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR):
        return NotExecutableError(argv[0], reason)
    if stage == "exec" and number == errno.E2BIG:
        return ArgumentsTooLongError(size)
    return StartFailedError(reason)
