"""A batch over the memory of its step: how that is kept, and how it looks to torch and NumPy."""

import ctypes
import math
import struct
from typing import Any, Callable, Dict, Optional, Tuple, Union

from odbd import _library
from odbd._client import Client
from odbd._errors import FAILED_PRECONDITION, Error
from odbd._step import SampleId, Step


class Batch(Dict[str, Any]):
    """Tensors by name (input_ids, labels, attention_mask, position_ids, ...) plus `step`.

    Torch tensors where torch is installed, else NumPy arrays, else memoryviews. They lie in memory that
    the daemon gets back when the last of them, or of anything made from them that shares their
    memory (views, autograd graphs), is gone.
    """

    def __init__(self, tensors: Any = (), step: Optional[Step] = None):
        super().__init__(tensors)
        self.step: Step = step  # type: ignore[assignment]

    @property
    def sample_ids(self) -> Tuple[SampleId, ...]:
        """step.sample_ids: which records the rows came from, in their order; empty if there are none."""
        return self.step.sample_ids

    @property
    def is_stand_in(self) -> bool:
        """step.is_stand_in: the tensors stand in for a batch that this rank has not; loss_scale is 0."""
        return self.step.is_stand_in


class _Memory:
    """Returns a step's memory when it dies."""

    __slots__ = ("_handle", "_release")

    def __init__(self, handle: int, release: Callable[[int], None]):
        self._handle = handle
        self._release = release

    def __del__(self) -> None:
        self._release(self._handle)


# Places a tensor: (buffer that it lies in, dtype, shape, offset in bytes, elements).
_View = Callable[[Any, int, Tuple[int, ...], int, int], Any]

# By the numbers of the C header: torch's and NumPy's name, memoryview's format, bytes. NumPy has no
# bfloat16 and memoryview no 16-bit floats: they show the bits.
_DTYPES = {
    1: ("int64", "int64", "q", 8),
    2: ("int32", "int32", "i", 4),
    3: ("bool", "bool_", "?", 1),
    4: ("uint8", "uint8", "B", 1),
    5: ("float32", "float32", "f", 4),
    6: ("float64", "float64", "d", 8),
    7: ("float16", "float16", "H", 2),
    8: ("bfloat16", "uint16", "H", 2),
}


# _library.Tensor, without an object for each of its fields: name, dtype, ndim, shape, data, bytes.
_TENSOR = struct.Struct("=QiiQQq")


def _torch_views() -> _View:
    import torch

    dtypes = {number: getattr(torch, names[0]) for number, names in _DTYPES.items()}

    def view(buffer: Any, dtype: int, shape: Tuple[int, ...], offset: int, count: int) -> Any:
        if count == 0:
            return torch.empty(shape, dtype=dtypes[dtype])
        flat = torch.frombuffer(buffer, dtype=dtypes[dtype], count=count, offset=offset)
        return flat.view(shape)

    return view


def _numpy_views() -> _View:
    import numpy

    dtypes = {number: getattr(numpy, names[1]) for number, names in _DTYPES.items()}

    def view(buffer: Any, dtype: int, shape: Tuple[int, ...], offset: int, count: int) -> Any:
        if count == 0:
            return numpy.empty(shape, dtype=dtypes[dtype])
        flat = numpy.frombuffer(buffer, dtype=dtypes[dtype], count=count, offset=offset)
        return flat.reshape(shape)

    return view


def _plain_view(buffer: Any, dtype: int, shape: Tuple[int, ...], offset: int, count: int) -> Any:
    _, _, code, size = _DTYPES[dtype]
    flat = memoryview(buffer).cast("B")[offset : offset + count * size]
    return flat.cast(code, shape) if count else flat.cast(code)


def _torch_copy(tensor: Any) -> Any:
    return tensor.clone()


def _numpy_copy(array: Any) -> Any:
    return array.copy()


def _plain_copy(view: Any) -> Any:
    return memoryview(bytearray(view.tobytes())).cast(view.format, view.shape)


def _choose(kind: str) -> Tuple[str, _View, Callable[[Any], Any]]:
    """Which of the kinds it is, how its views are made, and its copies."""
    if kind not in ("auto", "torch", "numpy", "memoryview"):
        raise ValueError(f"tensors must be auto, torch, numpy or memoryview, got {kind!r}")
    for name, views, copy in (
        ("torch", _torch_views, _torch_copy),
        ("numpy", _numpy_views, _numpy_copy),
    ):
        if kind == name:
            return name, views(), copy
        if kind == "auto":
            try:
                return name, views(), copy
            except ImportError:
                continue
    return "memoryview", _plain_view, _plain_copy


class _NativeTorch:
    """The compiled way from a step to torch tensors. Error where this Python cannot load it."""

    def __init__(self, library: ctypes.CDLL):
        from torch.utils.dlpack import from_dlpack

        from odbd import _native

        functions = (
            library.odb_client_next,
            library.odb_step_describe,
            library.odb_step_sample_ids,
            library.odb_step_release,
        )
        _native.bind(*(ctypes.cast(function, ctypes.c_void_p).value for function in functions))
        self.from_dlpack = from_dlpack
        self.take = _native.take
        self.view = _native.view


def _native_torch(library: ctypes.CDLL) -> Optional[_NativeTorch]:
    try:
        return _NativeTorch(library)
    except ImportError:
        return None  # ctypes does the same, in twice the time


class BatchMaker:
    """Makes batches of one session's steps. Used by one thread; the batches are free.

    Without an arena (over TCP) each step has memory of its own. `stand_in`: idle steps are given a
    stand-in.
    """

    def __init__(
        self, arena: Optional[int], arena_bytes: int, kind: str, copy: bool, stand_in: bool
    ):
        self._library = _library.load()
        kind, self._view, self._copy_tensor = _choose(kind)
        self._native = _native_torch(self._library) if kind == "torch" else None
        self._copy = copy
        self._stand_in = stand_in
        self._names: Dict[bytes, str] = {}
        self._arena = arena
        # One array type for the session: making one per size costs more than the rest of a step.
        self._arena_type = type("_Arena", (ctypes.c_char * arena_bytes,), {})
        # What the step at hand has, read in one call: a call costs more than what it copies.
        self._make_room(num_tensors=8, num_ids=64)

    def take(self, client: Client, timeout_ms: int) -> Union[int, Batch]:
        """Waits for the next step: its batch, or the library's code."""
        native = self._native
        if native is not None:
            batch = Batch.__new__(Batch)  # its step follows
            said = client.call(native.take, timeout_ms, batch, native.from_dlpack)
            return said if isinstance(said, int) else self._finish(batch, said, only_read=False)
        handle = ctypes.c_void_p()
        code = client.call(self._library.odb_client_next, timeout_ms, ctypes.byref(handle))
        return code if code != _library.OK else self.make(handle.value)

    def step(self, handle: int) -> Step:
        """Its numbers. Its tensors stand in self._tensors until the next call."""
        return self._describe(handle)[0]

    def _describe(self, handle: int) -> Tuple[Step, _library.StepInfo]:
        info = _library.StepInfo()
        while True:
            self._library.odb_step_describe(
                handle,
                ctypes.byref(info),
                ctypes.sizeof(info),
                self._tensors,
                len(self._tensors),
                ctypes.sizeof(_library.Tensor),
                self._ids,
                len(self._ids),
            )
            num_tensors, num_ids = info.num_tensors, info.num_samples
            if num_tensors <= len(self._tensors) and num_ids <= len(self._ids):
                break
            self._make_room(max(num_tensors, len(self._tensors)), max(num_ids, len(self._ids)))
        ids = ctypes.string_at(self._ids, num_ids * ctypes.sizeof(_library.SampleId))
        return Step(bytes(info), ids, bool(info.idle) and self._stand_in), info

    def _make_room(self, num_tensors: int, num_ids: int) -> None:
        self._tensors = (_library.Tensor * num_tensors)()
        self._tensor_bytes = memoryview(self._tensors).cast("B")
        self._ids = (_library.SampleId * num_ids)()

    def release(self, handle: int) -> None:
        self._library.odb_step_release(handle)

    def make(self, handle: int, only_read: bool = False) -> Batch:
        """Takes the step over. With copies its memory goes back at once. Never copies for who will only
        read."""
        if self._native is not None:
            batch = Batch.__new__(Batch)
            said = self._native.view(handle, batch, self._native.from_dlpack)
            return self._finish(batch, said, only_read)
        memory = _Memory(handle, self._library.odb_step_release)
        step, info = self._describe(handle)

        # All tensors of the step are views of this one object, and it holds the memory.
        if self._arena is None or info.step_id == 0:
            buffer, start = self._own_memory(info.num_tensors, memory)
        else:
            start = self._arena
            buffer = self._arena_type.from_address(start)
            buffer.memory = memory
        batch = Batch(step=step)
        self._fill(batch, info.num_tensors, buffer, start)
        return self._own_copy(batch, bool(info.idle), only_read)

    def _finish(
        self, batch: Batch, said: Tuple[bytes, bytes, bool, Optional[list]], only_read: bool
    ) -> Batch:
        """What the compiled way said of the step whose tensors it put into the batch."""
        info, ids, idle, bools = said
        batch.step = Step(info, ids, idle and self._stand_in)
        if bools is not None:
            import torch

            for name in bools:
                batch[name] = batch[name].view(torch.bool)
        return self._own_copy(batch, idle, only_read) if self._copy or idle else batch

    def _own_copy(self, batch: Batch, idle: bool, only_read: bool) -> Batch:
        # A stand-in lies where all idle steps have theirs: its owner must not write there.
        if (self._copy or idle) and not only_read and not batch.step.is_probe:
            for name in batch:
                batch[name] = self._copy_tensor(batch[name])
        return batch

    def _own_memory(self, num_tensors: int, memory: _Memory) -> Tuple[Any, int]:
        """An object over the tensors of a step that lie one behind the other, and where it begins."""
        tensors = [self._tensors[i] for i in range(num_tensors)]
        tensors = [tensor for tensor in tensors if tensor.bytes > 0]
        if not tensors:
            return b"", 0
        start = min(tensor.data for tensor in tensors)
        end = max(tensor.data + tensor.bytes for tensor in tensors)
        buffer = (ctypes.c_char * (end - start)).from_address(start)
        buffer.memory = memory
        return buffer, start

    def _fill(self, batch: Batch, num_tensors: int, buffer: Any, start: int) -> None:
        """Puts the step's tensors into the batch: views of `buffer`, which lies at `start`."""
        used = self._tensor_bytes[: num_tensors * _TENSOR.size]
        for name, dtype, ndim, shape_at, data, _ in _TENSOR.iter_unpack(used):
            if dtype not in _DTYPES:
                raise Error(FAILED_PRECONDITION, f"a tensor has the unknown type {dtype}")
            shape = tuple((ctypes.c_int64 * ndim).from_address(shape_at)) if ndim else ()
            count = math.prod(shape)
            offset = data - start if count else 0  # without bytes it may lie nowhere
            view = self._view(buffer, dtype, shape, offset, count)
            batch[self._name(ctypes.string_at(name))] = view

    def _name(self, name: bytes) -> str:
        """The same few again and again."""
        text = self._names.get(name)
        if text is None:
            text = self._names[name] = name.decode()
        return text
