"""libodb_client.so, found and declared. The header client/c_api/odb_client.h says what all of it means."""

import ctypes
import functools
import os
import pathlib
from typing import List

from odbd._errors import FAILED_PRECONDITION, Error

OK = 0
END = 1
TIMEOUT = 2


class SessionInfo(ctypes.Structure):
    _fields_ = [
        ("session_id", ctypes.c_uint64),
        ("arena_bytes", ctypes.c_uint64),
        ("arena", ctypes.c_void_p),
        ("daemon_pid", ctypes.c_int64),
        ("records", ctypes.c_int64),
        ("estimated_steps", ctypes.c_int64),
        ("accumulation", ctypes.c_int32),
        ("pad_token_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dp_rank", ctypes.c_int32),
        ("dp_size", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("loss_scale", ctypes.c_char_p),
        ("socket", ctypes.c_char_p),
        ("transport", ctypes.c_char_p),
    ]


class Counts(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("samples", "tokens", "padded_tokens", "loss_tokens", "vision_load")
    ]


class StepInfo(ctypes.Structure):
    _fields_ = [
        ("step_id", ctypes.c_int64),
        ("epoch", ctypes.c_int64),
        ("iterator", ctypes.c_int64),
        ("index", ctypes.c_int64),
        ("round", ctypes.c_int64),
        ("idle", ctypes.c_int32),
        ("num_tensors", ctypes.c_int32),
        ("num_samples", ctypes.c_int32),
        ("window_steps", ctypes.c_int32),
        ("window_index", ctypes.c_int32),
        ("modality_mask", ctypes.c_uint32),
        ("dp_size", ctypes.c_int64),
        ("loss_scale", ctypes.c_double),
        ("emitted_samples", ctypes.c_int64),
        ("total_samples", ctypes.c_int64),
        ("local", Counts),
        ("global_", Counts),
        ("window_local", Counts),
        ("window_global", Counts),
        ("waited_us", ctypes.c_int64),
    ]


class Waits(ctypes.Structure):
    _fields_ = [("total_us", ctypes.c_int64), ("longest_us", ctypes.c_int64)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
    ]


class SampleId(ctypes.Structure):
    _fields_ = [
        ("key", ctypes.c_int64),
        ("source", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


def _candidates() -> List[pathlib.Path]:
    named = os.environ.get("ODB_CLIENT_LIBRARY")
    if named:
        return [pathlib.Path(named)]
    package = pathlib.Path(__file__).resolve().parent
    folders = [package, package.parent / "lib", package.parent.parent / "lib"]
    return [folder / "libodb_client.so" for folder in folders]


_SIGNATURES = {
    # name: (result, arguments)
    "odb_version": (ctypes.c_char_p, []),
    "odb_client_new": (ctypes.c_void_p, []),
    "odb_client_free": (None, [ctypes.c_void_p]),
    "odb_client_set_option": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]),
    "odb_client_open": (ctypes.c_int, [ctypes.c_void_p]),
    "odb_client_close": (ctypes.c_int, [ctypes.c_void_p]),
    "odb_last_error": (ctypes.c_char_p, [ctypes.c_void_p]),
    "odb_client_waiting_text": (ctypes.c_char_p, [ctypes.c_void_p]),
    "odb_client_session": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.POINTER(SessionInfo), ctypes.c_size_t],
    ),
    "odb_client_pinned": (ctypes.c_int, [ctypes.c_void_p]),
    "odb_client_why_not_pinned": (ctypes.c_char_p, [ctypes.c_void_p]),
    "odb_client_probe": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)],
    ),
    "odb_client_start_epoch": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64],
    ),
    "odb_client_next": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p)],
    ),
    "odb_client_waits": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.POINTER(Waits), ctypes.c_size_t],
    ),
    "odb_client_peek": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)],
    ),
    "odb_client_end_iteration": (ctypes.c_int, [ctypes.c_void_p]),
    "odb_step_describe": (
        ctypes.c_int,
        [
            ctypes.c_void_p,
            ctypes.POINTER(StepInfo),
            ctypes.c_size_t,
            ctypes.POINTER(Tensor),
            ctypes.c_int32,
            ctypes.c_size_t,
            ctypes.POINTER(SampleId),
            ctypes.c_int32,
        ],
    ),
    "odb_step_sample_ids": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.POINTER(SampleId), ctypes.c_int32],
    ),
    "odb_step_release": (None, [ctypes.c_void_p]),
    "odb_loss_scale": (
        ctypes.c_int,
        [
            ctypes.POINTER(StepInfo),
            ctypes.c_int32,
            ctypes.c_int32,
            ctypes.c_int32,
            ctypes.c_int32,
            ctypes.POINTER(ctypes.c_double),
        ],
    ),
}


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library, loaded once. Error if it is nowhere."""
    candidates = _candidates()
    for path in candidates:
        if path.exists():
            library = ctypes.CDLL(str(path))
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype = result
                function.argtypes = arguments
            return library
    places = ", ".join(str(path) for path in candidates)
    raise Error(
        FAILED_PRECONDITION,
        f"libodb_client.so is not there (looked at {places}); set ODB_CLIENT_LIBRARY to its path",
    )
