"""What is known about a step besides its tensors."""

import struct
from fractions import Fraction
from typing import NamedTuple, Optional, Tuple

from odbd import _library


class Counts(NamedTuple):
    """Of one step or one accumulation window, of one rank or of all."""

    samples: int
    tokens: int  # real tokens
    padded_tokens: int  # with padding
    loss_tokens: int  # labels that count in the loss
    vision_load: int


class SampleId(NamedTuple):
    """Which record a sample came from."""

    source: int  # position of the file in the daemon's configuration
    key: int  # offset or index of the record in it


_SAMPLE_ID = struct.Struct("=qi4x")  # _library.SampleId, without an object for each


def _counts(counts: _library.Counts) -> Counts:
    return Counts(
        counts.samples,
        counts.tokens,
        counts.padded_tokens,
        counts.loss_tokens,
        counts.vision_load,
    )


class Step:
    """One step of an iteration: numbers that are valid for as long as one keeps them.

    Keeping a step keeps no tensor alive.
    """

    __slots__ = ("_bytes", "_parsed", "_ids", "_stand_in")

    def __init__(self, info: bytes, ids: bytes, stand_in: bool):
        """`info`: a _library.StepInfo as bytes. Many steps are never asked for it."""
        self._bytes = info
        self._parsed: Optional[_library.StepInfo] = None
        self._ids = ids
        self._stand_in = stand_in

    @property
    def _info(self) -> _library.StepInfo:
        if self._parsed is None:
            self._parsed = _library.StepInfo.from_buffer_copy(self._bytes)
        return self._parsed

    @property
    def loss_scale(self) -> float:
        """The factor for a loss that is the mean over this rank's loss tokens of the step, under an
        average over ranks (DDP): the gradient is then the mean over all ranks' tokens. 0 for an idle
        step. DataLoader.loss_scale() has the other conventions."""
        return self._info.loss_scale

    @property
    def idle(self) -> bool:
        """This rank has no samples at this step."""
        return bool(self._info.idle)

    @property
    def is_stand_in(self) -> bool:
        """The tensors are a short valid sample that stands in for none: use them as any, with
        loss_scale (0), so that every rank runs the same collectives."""
        return self._stand_in

    @property
    def is_probe(self) -> bool:
        """Of DataLoader.probe(): of the largest shapes, with nobody's samples; loss_scale is 0."""
        return self._info.step_id == 0

    @property
    def index(self) -> int:
        """Position in the iteration, from 0; equal on all ranks."""
        return self._info.index

    @property
    def epoch(self) -> int:
        return self._info.epoch

    @property
    def round(self) -> int:
        """The exchange between the ranks that planned this step."""
        return self._info.round

    @property
    def step_id(self) -> int:
        """Counts the steps of this process; daemon messages name steps by it."""
        return self._info.step_id

    @property
    def dp_size(self) -> int:
        return self._info.dp_size

    @property
    def local(self) -> Counts:
        """This rank's part of this step."""
        return _counts(self._info.local)

    @property
    def global_(self) -> Counts:
        """All ranks' parts of this step."""
        return _counts(self._info.global_)

    @property
    def window_local(self) -> Counts:
        """This rank's part of the accumulation window that this step belongs to."""
        return _counts(self._info.window_local)

    @property
    def window_global(self) -> Counts:
        """All ranks' parts of the accumulation window."""
        return _counts(self._info.window_global)

    @property
    def window_steps(self) -> int:
        """Steps of the accumulation window: fewer than `accumulation` at the end of an epoch."""
        return self._info.window_steps

    @property
    def window_index(self) -> int:
        """Position in the accumulation window, from 0."""
        return self._info.window_index

    @property
    def is_window_end(self) -> bool:
        """The optimizer steps after this step."""
        return self.window_index == self.window_steps - 1

    @property
    def num_items_in_batch(self) -> int:
        """Loss tokens of the window over all ranks, as Hugging Face models take it."""
        return self._info.window_global.loss_tokens

    @property
    def emitted_samples(self) -> int:
        """Samples of this iteration over all ranks, up to and with this step."""
        return self._info.emitted_samples

    @property
    def total_samples(self) -> int:
        """Samples of the epoch over all ranks; what is quarantined leaves it."""
        return self._info.total_samples

    @property
    def epoch_fraction(self) -> Fraction:
        """How far the epoch is after this step, exactly; equal on all ranks."""
        if self._info.total_samples == 0:
            return Fraction(1)
        return Fraction(self._info.emitted_samples, self._info.total_samples)

    @property
    def epoch_progress(self) -> float:
        """epoch_fraction as a float, 0 to 1; equal on all ranks."""
        return float(self.epoch_fraction)

    @property
    def wait_s(self) -> float:
        """Seconds that the loop waited for this step."""
        return self._info.waited_us / 1e6

    @property
    def sample_ids(self) -> Tuple[SampleId, ...]:
        """The samples of this rank in this step, in the order of the batch; empty if it is idle."""
        return tuple(SampleId(source, key) for key, source in _SAMPLE_ID.iter_unpack(self._ids))

    def __repr__(self) -> str:
        idle = ", idle" if self.idle else ""
        return (
            f"Step(epoch={self.epoch}, index={self.index}, samples={self.local.samples}, "
            f"tokens={self.local.tokens}, loss_scale={self.loss_scale:.6g}{idle})"
        )
