"""Exit codes, and the errors that end a command with one."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Complaint", "ExitCode"]


class ExitCode(IntEnum):
    """How a command ended; the numbers are documented, and stay."""

    OK = 0
    """Done; `doctor` found nothing that voids a guarantee."""
    NO = 1
    """`doctor` found something; there is no such name; or nothing was changed."""
    USAGE = 2
    """An argument makes no sense; nothing was sent."""
    STORE = 3
    """The server could not be reached, or refused."""
    UNEXPECTED = 4
    """An error that fencekit did not expect: please report it."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""


class Complaint(Exception):
    """Ends the command with a message for a person.

    Attributes:
        code: the exit code.
    """

    def __init__(self, message: str, code: ExitCode) -> None:
        self.code = code
        super().__init__(message)
