"""The one exception of this package."""

_NAMES = {
    -3: "INVALID_ARGUMENT",
    -4: "DEADLINE_EXCEEDED",
    -5: "NOT_FOUND",
    -7: "PERMISSION_DENIED",
    -8: "RESOURCE_EXHAUSTED",
    -9: "FAILED_PRECONDITION",
    -10: "ABORTED",
    -11: "OUT_OF_RANGE",
    -13: "INTERNAL",
    -14: "UNAVAILABLE",
    -15: "DATA_LOSS",
}

DEADLINE_EXCEEDED = -4
FAILED_PRECONDITION = -9


class Error(RuntimeError):
    """What went wrong, in one sentence, and what to do about it: `code`.

    INVALID_ARGUMENT: fix the argument. FAILED_PRECONDITION: calls in a wrong order, a closed loader, a
    forked process, a session that was replaced. UNAVAILABLE, NOT_FOUND: the daemon is gone or not there.
    DEADLINE_EXCEEDED: nothing came in time. INTERNAL: a fault of odbd.
    """

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code: str = _NAMES.get(code, f"UNKNOWN({code})")
