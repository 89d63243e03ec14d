"""DataLoader: a session with the node's odbd, as an iterable of batches."""

import ctypes
import itertools
import logging
import threading
import time
import warnings
import weakref
from typing import Any, Callable, Iterator, Optional, Union

from odbd import _library
from odbd._batch import Batch, BatchMaker
from odbd._client import Client
from odbd._device import DeviceCopies, parse_device, torch_cuda
from odbd._errors import DEADLINE_EXCEEDED, FAILED_PRECONDITION, Error
from odbd._step import Step

_log = logging.getLogger("odbd")

_SLICE_MS = 100  # Python looks at signals between two waits
_WAIT_LOG_SECONDS = 10.0

_REDUCTIONS = {"mean": 0, "sum": 1, "num_items": 2}
_WEIGHTS = {"loss_tokens": 0, "tokens": 1}


class DataLoader:
    """Attaches this process to its node's odbd and iterates over its batches.

    Everything comes from the environment that torchrun and odbrun set; without it the process is rank 0 of
    1. An iteration is one epoch (set_epoch, else the one after the last), unless max_steps or max_samples
    end it before. Leaving it early (break, an exception) tells the daemon how many steps were taken; all
    ranks have to leave at the same step.

    Arguments:
      socket: path of odbd's Unix socket, or tcp://host:port of an odbd whose memory cannot be shared
        (another machine, another container; its `listen`); default $ODB_SOCKET, else
        $XDG_RUNTIME_DIR/odbd.sock, else /tmp/odbd-<uid>.sock. Over TCP the job_token of the daemon is
        taken from $ODB_CLIENT_TOKEN, and batches are views of memory of this process.
      idle: what to do at a step for which this rank has no samples. "stand-in": give a short valid
        batch with loss_scale 0, so that DDP, FSDP and ZeRO run the same collectives on all ranks; "skip":
        leave it out; "raw": give an empty batch with batch.step.idle.
      copy: give tensors of their own instead of views of shared memory.
      max_steps, max_samples: end each iteration after so many steps (idle ones counted) or with the step
        that reaches so many samples over all ranks. Pass the same on all ranks: all stop together.
      prefetch: steps that are received ahead.
      dp_rank, dp_size, replica, replicas: place among the data-parallel ranks, and among the trainers
        that share a rank's steps (tensor, pipeline, context parallelism). Default: rank / replicas,
        world_size / replicas, rank % replicas, 1.
      timeout: seconds that a step may take before Error DEADLINE_EXCEEDED; None waits for ever and logs
        the daemon's reason every ten seconds.
      stream: which of the daemon's streams, "train" or another.
      connect_timeout: seconds to wait for the socket to appear.
      tensors: "auto" (torch, else NumPy, else memoryview), or one of them.
      transport: how the messages about steps travel: "ring" (shared memory; no thread of odbd in this
        process), "stream" (gRPC), or "auto", the ring where the daemon offers it. Default
        $ODB_CLIENT_TRANSPORT, else "auto". Over TCP always "stream".

      device: None or "cpu" (views of shared memory), or "cuda", "cuda:1", a torch.device: batches on that
        GPU, "cuda" meaning torch.cuda.current_device() now. The next step is copied while one is in use, on
        a stream of odbd's; the stream that is current when a batch is given waits for its copy. The
        shared memory is pinned for that, if it can be; if not, one RuntimeWarning says why and copies are
        slower. `copy` has no meaning then.

    One thread uses a loader; batches are free. In a forked child it raises Error and does not disturb
    the parent's. It is a context manager; otherwise it closes when it is collected or Python exits.

    Errors: odbd.Error, whose text says what happened and whose `code` what to do about it.
    """

    def __init__(
        self,
        socket: Optional[str] = None,
        idle: str = "stand-in",
        copy: bool = False,
        max_steps: Optional[int] = None,
        max_samples: Optional[int] = None,
        prefetch: Optional[int] = None,
        dp_rank: Optional[int] = None,
        dp_size: Optional[int] = None,
        replica: Optional[int] = None,
        replicas: Optional[int] = None,
        timeout: Optional[float] = None,
        stream: str = "train",
        connect_timeout: Optional[float] = None,
        tensors: str = "auto",
        transport: Optional[str] = None,
        device: Any = None,
    ):
        for name, limit in (("max_steps", max_steps), ("max_samples", max_samples)):
            if limit is not None and limit < 1:
                raise ValueError(f"{name} must be at least 1 or None, got {limit}")
        self._device = parse_device(device, tensors)
        cuda = index = None
        if self._device is not None:
            cuda = self._open_cuda()
            index = cuda.choose(self._device)
            self._device = type(self._device)("cuda", index)
        self._library = _library.load()
        self._timeout = timeout
        self._limits = (max_steps or 0, max_samples or 0)
        self._next_epoch = 0
        self._iterator: Optional["weakref.ref[_Iterator]"] = None
        self._last_step: Optional[Step] = None
        options = {
            "socket": socket,
            "idle": idle,
            "prefetch": prefetch,
            "dp_rank": dp_rank,
            "dp_size": dp_size,
            "replica": replica,
            "replicas": replicas,
            "stream": stream,
            "connect_timeout_ms": _millis(connect_timeout),
            "transport": transport,
            "device": index,
            "client_name": "odbd-python " + self._library.odb_version().decode(),
        }
        client = Client(self._library)
        for name, value in options.items():
            if value is not None:
                client.call(
                    self._library.odb_client_set_option, name.encode(), str(value).encode()
                )
        _open(client)
        self._client: Optional[Client] = client
        self._copies: Optional[DeviceCopies] = None
        self._finalizer = weakref.finalize(self, client.close)
        try:
            session = _library.SessionInfo()
            client.call(
                self._library.odb_client_session, ctypes.byref(session), ctypes.sizeof(session)
            )
            self._session = session
            self._maker = BatchMaker(
                session.arena, session.arena_bytes, tensors, copy, idle == "stand-in"
            )
            self._loss_weight = session.loss_scale.decode()
            self._socket = session.socket.decode()
            if self.why_not_pinned and not self.pinned:
                warnings.warn(
                    f"odbd's memory is not pinned, so copies to a GPU hold up the loop: {self.why_not_pinned}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            if cuda is not None:
                self._copies = DeviceCopies(cuda, index, self.pinned)
                self._finalizer.detach()
                self._finalizer = weakref.finalize(self, _finish, client, self._copies)
        except BaseException:
            self.close()
            raise

    # --- Iterating -----------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration; the one after it is epoch + 1 unless set again."""
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0, got {epoch}")
        self._next_epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        """Begins an iteration. One that still runs is ended: its iterator raises Error from then on."""
        client = self._usable_client()
        self._end_iterator("another iterator of this loader was started")
        client.call(self._library.odb_client_start_epoch, self._next_epoch, *self._limits)
        self._next_epoch += 1
        iterator = _Iterator(self)
        self._iterator = weakref.ref(iterator)
        return iterator

    def probe(self) -> Iterator[Batch]:
        """The largest batches that can come, one after the other, before the first step.

            for batch in loader.probe():        # on every rank, before training
                loss = model(batch["input_ids"], batch["labels"]) * batch.step.loss_scale
                loss.backward()
                optimizer.zero_grad()           # no optimizer.step()

        A model that has run them runs out of memory at no later step. They hold valid values in memory of
        their own, have loss_scale 0, no samples and step.is_probe; they are the same, in number and shape, on
        all ranks, and tell the daemon nothing.
        """
        for index in itertools.count():
            client = self._usable_client()
            handle = ctypes.c_void_p()
            code = client.call(self._library.odb_client_probe, index, ctypes.byref(handle))
            if code == _library.END:
                return
            batch = self._maker.make(handle.value)
            if self._device is not None:
                for name in batch:
                    batch[name] = batch[name].to(self._device)
            yield batch
            del batch  # or it would live beside the next one

    def _next(self) -> Optional[Batch]:
        """The next batch; None at the end of the iteration."""
        client = self._usable_client()
        if self._copies is not None:
            batch = self._next_on_device(client, self._copies)
        else:
            batch = self._wait_for_step(client, self._maker.take)
        if batch is not None:
            self._last_step = batch.step
        return batch

    def _next_on_device(self, client: Client, copies: DeviceCopies) -> Optional[Batch]:
        copies.give_back()
        handle = self._wait_for_step(client, self._take_handle)
        if handle is None:
            copies.finish()
            return None
        # Its numbers are known when it is taken: what was waited for it is one of them.
        step = self._maker.step(handle.value)
        copy = copies.take_ahead(step)
        if copy is None:
            copy = copies.start(self._maker.make(handle.value, only_read=True))
        else:
            self._maker.release(handle.value)
        batch = copies.give(copy)
        self._copy_ahead(client, copies)
        return batch

    def _copy_ahead(self, client: Client, copies: DeviceCopies) -> None:
        """Begins to copy the next step, if it is here. It is not taken by that."""
        handle = ctypes.c_void_p()
        try:
            code = client.call(self._library.odb_client_peek, ctypes.byref(handle))
        except Error:
            return  # which the next call tells
        if code == _library.OK:
            copies.start_ahead(self._maker.make(handle.value, only_read=True))

    def _take_handle(self, client: Client, timeout_ms: int) -> Union[int, ctypes.c_void_p]:
        """Waits for the next step: its handle, or the library's code."""
        handle = ctypes.c_void_p()
        code = client.call(self._library.odb_client_next, timeout_ms, ctypes.byref(handle))
        return handle if code == _library.OK else code

    def _wait_for_step(self, client: Client, take: Callable[[Client, int], Any]) -> Any:
        """What `take` gives for the next step; None at the end of the iteration."""
        started = time.monotonic()
        logged = started
        while True:
            # The daemon may wait for memory whose copy is under way: before a wait for the daemon
            # comes one for the copies.
            copying = self._copies is not None and self._copies.is_pending
            slice_ms = 0 if copying else _SLICE_MS
            taken = take(client, slice_ms)
            if not isinstance(taken, int):
                return taken
            if taken == _library.END:
                return None
            if copying:
                self._copies.wait_for_oldest()
                continue
            now = time.monotonic()
            if self._timeout is not None and now - started >= self._timeout:
                raise Error(
                    DEADLINE_EXCEEDED,
                    f"no step came in {self._timeout:g} s from odbd at {self._socket}; it says: "
                    + (self._waiting_text(client) or "nothing"),
                )
            if now - logged >= _WAIT_LOG_SECONDS:
                logged = now
                _log.warning(
                    "waiting for a step since %.0f s: %s",
                    now - started,
                    self._waiting_text(client) or "no reason known",
                )

    def _waits(self) -> _library.Waits:
        waits = _library.Waits()
        self._usable_client().call(
            self._library.odb_client_waits, ctypes.byref(waits), ctypes.sizeof(waits)
        )
        return waits

    def _waiting_text(self, client: Client) -> str:
        return client.call(self._library.odb_client_waiting_text).decode(errors="replace")

    def _end_iterator(self, reason: str) -> None:
        iterator = self._iterator() if self._iterator is not None else None
        self._iterator = None
        if self._copies is not None:
            self._copies.forget_ahead()
        if iterator is not None:
            iterator._ended = iterator._ended or reason

    def _abandon(self) -> None:
        """An iterator was dropped before its end."""
        client = self._client
        if client is not None:
            self._iterator = None
            if self._copies is not None:
                self._copies.forget_ahead()
            client.end_iteration()

    def __len__(self) -> int:
        raise TypeError(
            "the number of batches is not known before they are formed, so an odbd.DataLoader has no "
            "len(); use loader.estimated_steps, batch.step.epoch_progress, max_steps or max_samples"
        )

    def __bool__(self) -> bool:
        return True

    # --- What is known -------------------------------------------------------------------------

    @property
    def estimated_steps(self) -> Optional[int]:
        """About how many steps an epoch has; None if the daemon has no estimate yet."""
        return self._session.estimated_steps or None

    @property
    def records(self) -> int:
        """Records of an epoch over all ranks, before bad ones are quarantined."""
        return self._session.records

    @property
    def accumulation(self) -> int:
        """Steps per optimizer step, as the daemon is configured."""
        return self._session.accumulation

    @property
    def pad_token_id(self) -> int:
        return self._session.pad_token_id

    @property
    def transport(self) -> str:
        """How the messages about steps travel: "ring" or "stream"."""
        return self._session.transport.decode()

    @property
    def wait_s(self) -> float:
        """Seconds that the loop waited for the steps of its iteration, or of the last one."""
        return self._waits().total_us / 1e6

    @property
    def longest_wait_s(self) -> float:
        """For the step that took longest."""
        return self._waits().longest_us / 1e6

    @property
    def device(self) -> Any:
        """The torch.device of the batches; None if they are views of shared memory."""
        return self._device

    @property
    def pinned(self) -> bool:
        """Whether the shared memory is pinned for the GPU: with device=, or $ODB_CLIENT_PIN=on."""
        return bool(self._usable_client().call(self._library.odb_client_pinned))

    @property
    def why_not_pinned(self) -> str:
        """Why it is not although it was to be; empty if it is, or if it was not to be."""
        text = self._usable_client().call(self._library.odb_client_why_not_pinned)
        return text.decode(errors="replace")

    @property
    def dp_rank(self) -> int:
        return self._session.dp_rank

    @property
    def dp_size(self) -> int:
        return self._session.dp_size

    def loss_scale(
        self,
        step: Union[Step, Batch, None] = None,
        *,
        reduction: str = "mean",
        averaged_over: str = "ranks",
        divided_by_accumulation: Union[bool, int] = False,
        weight: Optional[str] = None,
    ) -> float:
        """The factor for the loss of `step` (default: the last one given) with which the gradient of the
        optimizer step is the mean over the tokens of all ranks and of the accumulation window.

          reduction: what the loss is: "mean" over this step's local tokens, their "sum", or their sum
            divided by step.num_items_in_batch ("num_items").
          averaged_over: "ranks" if gradients are averaged over ranks (DDP, FSDP, ZeRO), "nothing" if they
            are summed.
          divided_by_accumulation: True if the framework divides each loss by `accumulation` (Hugging Face's
            Trainer, DeepSpeed); a number if it divides by that.
          weight: which tokens count: "loss_tokens" or "tokens"; default: as the daemon is configured.

        With n = local tokens of the step, N = those of the window over all ranks, D = dp_size or 1, and K =
        the divisor or 1:  mean: D K n / N,  sum: D K / N,  num_items: D K,  and 0 for an idle step.
        """
        step = step.step if isinstance(step, Batch) else step or self._last_step
        if step is None:
            raise Error(FAILED_PRECONDITION, "loss_scale needs a step: none was given yet")
        divided_by = int(divided_by_accumulation)
        if divided_by_accumulation is True:
            divided_by = self.accumulation
        if weight is None:
            weight = "tokens" if self._loss_weight == "tokens" else "loss_tokens"
        scale = ctypes.c_double()
        code = self._library.odb_loss_scale(
            ctypes.byref(step._info),
            _lookup("reduction", reduction, _REDUCTIONS),
            _lookup("weight", weight, _WEIGHTS),
            _lookup("averaged_over", averaged_over, {"nothing": 0, "ranks": 1}),
            divided_by or 1,
            ctypes.byref(scale),
        )
        if code != _library.OK:
            raise ValueError(f"divided_by_accumulation must be at least 1, got {divided_by}")
        return scale.value

    # --- The end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the session. Batches that are still held stay valid. Closing again does nothing."""
        self._end_iterator("the loader was closed")
        self._client = None
        self._finalizer()

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    _open_cuda = staticmethod(torch_cuda)  # tests put a stand-in here

    def _usable_client(self) -> Client:
        if self._client is None:
            raise Error(FAILED_PRECONDITION, "the loader is closed")
        return self._client


class _Iterator:
    """One iteration. Dropping it before its end ends the iteration for the daemon too."""

    def __init__(self, loader: DataLoader):
        self._loader = loader
        self._ended: Optional[str] = None  # why, in a way that makes further use an error
        self._exhausted = False

    def __iter__(self) -> "_Iterator":
        return self

    def __next__(self) -> Batch:
        if self._exhausted:
            raise StopIteration
        if self._ended is not None:
            raise Error(FAILED_PRECONDITION, f"this iterator is over: {self._ended}")
        batch = self._loader._next()
        if batch is None:
            self._exhausted = True
            raise StopIteration
        return batch

    def close(self) -> None:
        """Leaves the iteration after the last batch that was given."""
        if not self._exhausted and self._ended is None:
            self._ended = "it was closed"
            self._loader._abandon()

    def __del__(self) -> None:
        self.close()


def _open(client: Client) -> None:
    """In a thread, so that Ctrl-C gets through while the daemon is waited for. After one the thread has the
    client for itself, and with it the session that it may still get."""
    result = []
    opening = threading.Thread(target=lambda: result.append(client.open()), daemon=True)
    opening.start()
    logged = time.monotonic()
    while opening.is_alive():
        opening.join(_SLICE_MS / 1000)
        if time.monotonic() - logged >= _WAIT_LOG_SECONDS:
            logged = time.monotonic()
            _log.warning("waiting for odbd to open the session")
    client.check(result[0])


def _finish(client: Client, copies: DeviceCopies) -> None:
    """Copies first: the memory that they read must not go."""
    try:
        copies.finish()
    finally:
        client.close()


def _millis(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None else int(seconds * 1000)


def _lookup(argument: str, value: str, known: "dict[str, int]") -> int:
    if value not in known:
        raise ValueError(f"{argument} must be {' or '.join(known)}, got {value!r}")
    return known[value]
