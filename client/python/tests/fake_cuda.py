"""A stand-in for odbd._device.TorchCuda: a GPU that does nothing before it is let.

What a stream is given is done when the test advances it, or when somebody waits for an event. A wait that is
missing shows in the values, and memory that was let go before its copy stands in `misuse`.
"""

import collections
import weakref

import torch


class Stream:
    def __init__(self, name):
        self.name = name
        self.operations = collections.deque()

    def advance(self):
        """Does what comes next. False: nothing is to come, or it waits for an event."""
        if not self.operations:
            return False
        kind, argument = self.operations[0]
        if kind == "wait" and not argument.complete:
            return False
        self.operations.popleft()
        if kind == "do":
            argument()
        elif kind == "record":
            argument.complete = True
        return True


class Event:
    def __init__(self, cuda, stream):
        self.complete = False
        self._cuda = cuda
        self._stream = stream

    def query(self):
        return self.complete

    def synchronize(self):
        self._cuda.log.append("synchronize")
        while not self.complete:
            assert self._stream.advance(), "an event that never comes"


class FakeCuda:
    """`log` has a line for each call; `fail` is raised by the copy that comes when it is set."""

    def __init__(self, devices=2):
        self.devices = devices
        self.log = []
        self.current = Stream("training")
        self.copying = None
        self.kept = []  # (tensor's id, name of the stream)
        self.fail = None
        self.misuse = []

    # --- What the test does ---

    def read(self, tensor, out):
        """The training loop's stream reads the tensor into the list when it gets there."""
        self.current.operations.append(("do", lambda: out.extend(tensor.flatten().tolist())))

    def advance_all(self):
        while self.copying.advance() or self.current.advance():
            pass

    # --- As TorchCuda ---

    def choose(self, device):
        assert device.type == "cuda"
        return 0 if device.index is None else device.index

    def stream(self, index):
        assert index < self.devices
        self.copying = Stream("copying")
        return self.copying

    def current_stream(self, index):
        return self.current

    def copy(self, tensor, index, stream, non_blocking):
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        self.log.append("copy" if non_blocking else "blocking copy")
        result = torch.full_like(tensor, 0x5D)
        source = weakref.ref(tensor)  # a GPU keeps no tensor alive

        def perform():
            if source() is None:
                self.misuse.append("memory is copied from that was let go")
            else:
                result.copy_(source())

        stream.operations.append(("do", perform))
        if not non_blocking:
            while stream.advance():
                pass
        return result

    def record(self, stream):
        self.log.append("record")
        event = Event(self, stream)
        stream.operations.append(("record", event))
        return event

    def wait(self, stream, event):
        self.log.append("wait")
        stream.operations.append(("wait", event))

    def keep_for(self, tensor, stream):
        self.log.append("keep")
        self.kept.append((id(tensor), stream.name))
