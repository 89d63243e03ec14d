"""Client: who owns a client of the library, from odb_client_new to odb_client_free."""

import ctypes
import os
import threading
from typing import Any, Callable

from odbd._errors import FAILED_PRECONDITION, Error


class Client:
    """A client of the library. Closed when it is told to; freed when nothing refers to it any more.

    So a call always has a client to be made with: the end of Python, a signal handler or another thread
    may close it at any time, also below a call that waits, and iterators may die long after that. After
    close() every call raises Error.

    Threads: calls are made one at a time, as the library asks for; a thread that closes waits for the
    running one. Forked children: calls raise Error, the rest does nothing.
    """

    def __init__(self, library: ctypes.CDLL):
        self._library = library
        # Bound here: modules may be gone already when the last client dies.
        self._getpid = os.getpid
        self._pid = os.getpid()
        self._closed = False
        # Of a kind that lets a signal handler close the client below a call of the same thread.
        self._lock = threading.RLock()
        self._handle = library.odb_client_new()

    def open(self) -> int:
        """A code to check. Not under the lock: it may take for ever, and nobody else has the client yet."""
        return self._library.odb_client_open(self._handle)

    def check(self, code: int) -> None:
        """Error if the library's last answer for this client is a code of one."""
        if code < 0:
            message = self._library.odb_last_error(self._handle).decode(errors="replace")
            raise Error(code, message)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of the library says for this client; Error if that is a code of one."""
        if self._closed or self._getpid() != self._pid:
            self._check_usable()  # before the lock: in a forked child nobody might ever give it up
        with self._lock:
            if self._closed:
                self._check_usable()
            result = function(self._handle, *arguments)
            if isinstance(result, int) and result < 0:
                self.check(result)
            return result

    def end_iteration(self) -> None:
        """Tells the daemon; nothing if there is no session any more."""
        if self._closed or self._getpid() != self._pid:
            return
        with self._lock:
            if not self._closed:
                self._library.odb_client_end_iteration(self._handle)

    def close(self) -> None:
        """Ends the session. Closing again does nothing."""
        if self._getpid() != self._pid:
            return
        self._closed = True  # before the lock: a loop of calls ends and gives it up
        with self._lock:
            self._library.odb_client_close(self._handle)

    def __del__(self) -> None:
        # In a forked child the library leaves the parent's session alone.
        self._library.odb_client_free(self._handle)

    def _check_usable(self) -> None:
        if self._getpid() != self._pid:
            raise Error(
                FAILED_PRECONDITION,
                f"this loader was opened by process {self._pid} and process {self._getpid()} was forked "
                "from it: make a loader of its own there",
            )
        if self._closed:
            raise Error(FAILED_PRECONDITION, "the loader is closed")
