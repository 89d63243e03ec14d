"""A batch over the memory of its step: how that is kept, and how it looks to torch and NumPy."""

import ctypes
import math
import struct
from typing import Any, Callable, Dict, Optional, Tuple

from odbd import _library
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
    ndarray, arrays = _numpy_for(torch)

    def view(buffer: Any, dtype: int, shape: Tuple[int, ...], offset: int, count: int) -> Any:
        if count == 0:
            return torch.empty(shape, dtype=dtypes[dtype])
        if dtype in arrays:
            return torch.from_numpy(ndarray(shape, arrays[dtype], buffer, offset))
        flat = torch.frombuffer(buffer, dtype=dtypes[dtype], count=count, offset=offset)
        return flat.view(shape)

    return view


def _numpy_for(torch: Any) -> Tuple[Any, Dict[int, Any]]:
    """NumPy's array and its types, if torch can take them: that way a tensor costs a third."""
    try:
        import numpy

        torch.from_numpy(numpy.zeros(1))
    except (ImportError, RuntimeError):
        return None, {}
    same = {number: names for number, names in _DTYPES.items() if names[0] != "bfloat16"}
    return numpy.ndarray, {number: numpy.dtype(names[1]) for number, names in same.items()}


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


def _choose(kind: str) -> Tuple[_View, Callable[[Any], Any]]:
    if kind not in ("auto", "torch", "numpy", "memoryview"):
        raise ValueError(f"tensors must be auto, torch, numpy or memoryview, got {kind!r}")
    for name, views, copy in (
        ("torch", _torch_views, _torch_copy),
        ("numpy", _numpy_views, _numpy_copy),
    ):
        if kind == name:
            return views(), copy
        if kind == "auto":
            try:
                return views(), copy
            except ImportError:
                continue
    return _plain_view, _plain_copy


class BatchMaker:
    """Makes batches of one session's steps. Used by one thread; the batches are free.

    Without an arena (over TCP) each step has memory of its own.
    """

    def __init__(self, arena: Optional[int], arena_bytes: int, kind: str, copy: bool):
        self._library = _library.load()
        self._view, self._copy_tensor = _choose(kind)
        self._copy = copy
        self._names: Dict[bytes, str] = {}
        self._arena = arena
        # One array type for the session: making one per size costs more than the rest of a step.
        self._arena_type = type("_Arena", (ctypes.c_char * arena_bytes,), {})
        # What the step at hand has, read in one call: a call costs more than what it copies.
        self._make_room(num_tensors=8, num_ids=64)

    def step(self, handle: int, stand_in: bool) -> Step:
        """Its numbers. Its tensors stand in self._tensors until the next call."""
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
        return Step(info, ids, bool(info.idle) and stand_in)

    def _make_room(self, num_tensors: int, num_ids: int) -> None:
        self._tensors = (_library.Tensor * num_tensors)()
        self._tensor_bytes = memoryview(self._tensors).cast("B")
        self._ids = (_library.SampleId * num_ids)()

    def release(self, handle: int) -> None:
        self._library.odb_step_release(handle)

    def make(self, handle: int, stand_in: bool, only_read: bool = False) -> Batch:
        """Takes the step over. With copies its memory goes back at once. Never copies for who will only
        read."""
        memory = _Memory(handle, self._library.odb_step_release)
        step = self.step(handle, stand_in)

        # All tensors of the step are views of this one object, and it holds the memory.
        if self._arena is None:
            buffer, start = self._own_memory(step, memory)
        else:
            start = self._arena
            buffer = self._arena_type.from_address(start)
            buffer.memory = memory
        # A stand-in lies where all idle steps have theirs: its owner must not write there.
        copy = (self._copy or step.idle) and not only_read
        return self._fill(Batch(step=step), buffer, start, copy)

    def make_probe(self, handle: int) -> Batch:
        """Takes over a step whose tensors lie one behind the other, outside of the arena."""
        memory = _Memory(handle, self._library.odb_step_release)
        step = self.step(handle, stand_in=False)
        buffer, start = self._own_memory(step, memory)
        return self._fill(Batch(step=step), buffer, start, copy=False)

    def _own_memory(self, step: Step, memory: _Memory) -> Tuple[Any, int]:
        """An object over the tensors of a step that lie one behind the other, and where it begins."""
        tensors = [self._tensors[i] for i in range(step._info.num_tensors)]
        tensors = [tensor for tensor in tensors if tensor.bytes > 0]
        if not tensors:
            return b"", 0
        start = min(tensor.data for tensor in tensors)
        end = max(tensor.data + tensor.bytes for tensor in tensors)
        buffer = (ctypes.c_char * (end - start)).from_address(start)
        buffer.memory = memory
        return buffer, start

    def _fill(self, batch: Batch, buffer: Any, start: int, copy: bool) -> Batch:
        """Puts the step's tensors into the batch: views of `buffer`, which lies at `start`, or copies."""
        used = self._tensor_bytes[: batch.step._info.num_tensors * _TENSOR.size]
        for name, dtype, ndim, shape_at, data, _ in _TENSOR.iter_unpack(used):
            if dtype not in _DTYPES:
                raise Error(FAILED_PRECONDITION, f"a tensor has the unknown type {dtype}")
            shape = tuple((ctypes.c_int64 * ndim).from_address(shape_at)) if ndim else ()
            count = math.prod(shape)
            offset = data - start if count else 0  # without bytes it may lie nowhere
            view = self._view(buffer, dtype, shape, offset, count)
            batch[self._name(ctypes.string_at(name))] = self._copy_tensor(view) if copy else view
        return batch

    def _name(self, name: bytes) -> str:
        """The same few again and again."""
        text = self._names.get(name)
        if text is None:
            text = self._names[name] = name.decode()
        return text
