"""Batches on a GPU: copied one step ahead of the training loop, with torch's streams and its allocator."""

import collections
import os
from typing import Any, Deque, Optional, Tuple

from odbd._batch import Batch
from odbd._errors import FAILED_PRECONDITION, Error
from odbd._step import Step


class TorchCuda:
    """The few things that copies need of torch.cuda, each a call or two, and what is said where they are
    missing. `torch` is the module."""

    def __init__(self, torch: Any):
        self._torch = torch

    def choose(self, device: Any) -> int:
        """The number of the device that torch.device `device` means. Error if it cannot be used."""
        cuda = self._torch.cuda
        if not cuda.is_available():
            missing = "torch finds no usable GPU and driver"
            if self._torch.version.cuda is None:
                missing = "this torch was built without CUDA"
            raise Error(
                FAILED_PRECONDITION,
                f"device {str(device)!r} was asked for, but torch.cuda.is_available() is false: {missing}",
            )
        index = cuda.current_device() if device.index is None else device.index
        if index >= cuda.device_count():
            raise Error(
                FAILED_PRECONDITION,
                f"device {str(device)!r} was asked for, but torch shows this process "
                f"{cuda.device_count()} GPUs, from 0",
            )
        return index

    def stream(self, index: int) -> Any:
        """A stream of its own on the device."""
        return self._torch.cuda.Stream(device=index)

    def current_stream(self, index: int) -> Any:
        """The one that the training loop uses just now."""
        return self._torch.cuda.current_stream(index)

    def copy(self, tensor: Any, index: int, stream: Any, non_blocking: bool) -> Any:
        """A copy on the device, in memory of torch's allocator, made when `stream` gets there."""
        with self._torch.cuda.stream(stream):
            return tensor.to(self._torch.device("cuda", index), non_blocking=non_blocking)

    def record(self, stream: Any) -> Any:
        """An event, with query() and synchronize(), complete once all is that `stream` was given."""
        event = self._torch.cuda.Event()
        event.record(stream)
        return event

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def keep_for(self, tensor: Any, stream: Any) -> None:
        """The allocator gives the memory to nobody before `stream` is done with what it was given by the
        time the tensor dies."""
        tensor.record_stream(stream)


class DeviceCopies:
    """Copies of one session's steps to one device, on a stream of its own.

    The host's memory of a step, shared with the daemon, is kept until its copy is complete, which is
    looked at whenever a step is asked for; the device's belongs to torch. Threads: the loader's.
    """

    def __init__(self, cuda: Any, index: int, pinned: bool):
        self._cuda = cuda
        self._index = index
        self._non_blocking = pinned
        self._stream = cuda.stream(index)
        self._pid = os.getpid()
        # Copies that may be under way, in the order of the stream, with what they read.
        self._pending: Deque[Tuple[Any, Batch]] = collections.deque()
        self._ahead: Optional[Tuple[Batch, Any]] = None

    def start(self, host: Batch) -> Tuple[Batch, Any]:
        """Begins to copy; what give() takes. `host` lives until that is done."""
        batch = Batch(step=host.step)
        try:
            for name, tensor in host.items():
                batch[name] = self._cuda.copy(tensor, self._index, self._stream, self._non_blocking)
        finally:
            # After an error too (no memory left): what was begun still reads.
            event = self._cuda.record(self._stream)
            self._pending.append((event, host))
        return batch, event

    def give(self, copy: Tuple[Batch, Any]) -> Batch:
        """The batch, for the stream that is the current one: it waits for the copy, Python does not."""
        batch, event = copy
        stream = self._cuda.current_stream(self._index)
        self._cuda.wait(stream, event)
        for tensor in batch.values():
            self._cuda.keep_for(tensor, stream)
        return batch

    def start_ahead(self, host: Batch) -> None:
        """Begins to copy the step after the one that was given. An error (no memory left) is for the call
        that has to have the step, which tries again."""
        try:
            self._ahead = self.start(host)
        except RuntimeError:
            self._ahead = None

    def take_ahead(self, step: Step) -> Optional[Tuple[Batch, Any]]:
        """The copy that was begun ahead, if it is of this step."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0].step.step_id != step.step_id:
            return None
        ahead[0].step = step
        return ahead

    def forget_ahead(self) -> None:
        """The loop was left before that step."""
        self._ahead = None

    def give_back(self) -> None:
        """Lets go of what has been copied. Does not wait."""
        while self._pending and self._pending[0][0].query():
            self._pending.popleft()

    def wait_for_oldest(self) -> bool:
        """Waits until the oldest copy is complete and lets go of what it read. False: there is none."""
        if not self._pending:
            return False
        self._pending[0][0].synchronize()
        self._pending.popleft()
        return True

    @property
    def is_pending(self) -> bool:
        return bool(self._pending)

    def finish(self) -> None:
        """Waits for all copies: nothing reads the host's memory after it. Nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        self._ahead = None
        while self.wait_for_oldest():
            pass


def parse_device(device: Any, tensors: str) -> Any:
    """The torch.device that DataLoader(device=) means; None for the host. Error without torch; ValueError
    for what is none."""
    if device is None:
        return None
    try:
        import torch
    except ImportError:
        raise Error(
            FAILED_PRECONDITION,
            f"device {str(device)!r} was asked for, but it needs torch, which is not installed",
        ) from None
    try:
        parsed = torch.device(device)
    except (RuntimeError, TypeError):
        parsed = None
    if parsed is None or parsed.type not in ("cuda", "cpu"):
        raise ValueError(f"device must be cuda, cuda:<n>, cpu or None, got {str(device)!r}")
    if tensors not in ("auto", "torch"):
        raise ValueError(f"device needs tensors='torch', got tensors={tensors!r}")
    return None if parsed.type == "cpu" else parsed


def torch_cuda() -> TorchCuda:
    import torch

    return TorchCuda(torch)
