"""Work of a GPU in order: streams, events in them, and graphs of what was captured from one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_float, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, Final, TypeAlias

from numpy.typing import NDArray

from opweld.errors import DeviceError
from opweld.runtime.cuda.device import Device, Owned
from opweld.runtime.cuda.driver import KernelNode

Node: TypeAlias = int
"""A node of a graph."""

_NON_BLOCKING: Final = 1
_DISABLE_TIMING: Final = 2
_RELAXED: Final = 2
"""Flags of streams and events, and the mode of captures in which no call of any thread is forbidden: memory that is
given back meanwhile, as by a garbage collector, ends no capture."""


class Event(Owned):
    """A point in the work of a stream."""

    def __init__(self, device: Device, *, timing: bool = True) -> None:
        """`timing`: whether `elapsed` may be asked; an event without it costs less to wait for."""
        found = c_void_p()
        device.call("cuEventCreate", byref(found), 0 if timing else _DISABLE_TIMING)
        super().__init__(device, found.value or 0, "cuEventDestroy_v2")

    def record(self, stream: Stream) -> None:
        """Puts the event behind what the stream was given so far."""
        self.device.call("cuEventRecord", self.handle, stream.handle)

    def synchronize(self) -> None:
        """Waits until the work before it is done."""
        self.device.call("cuEventSynchronize", self.handle)

    def elapsed(self, start: Event) -> float:
        """Seconds from `start` to this event, both done; the device's clock has steps of half a microsecond."""
        found = c_float()
        self.device.call("cuEventElapsedTime", byref(found), start.handle, self.handle)
        return found.value * 1e-3


class Stream(Owned):
    """Work in order. Memory addresses are numbers; arrays of the host must stay until what copies them is done."""

    def __init__(self, device: Device, handle: int | None = None) -> None:
        """A new stream, which the legacy default stream does not wait for; or one of somebody else's, such as PyTorch's
        `torch.cuda.current_stream().cuda_stream`, which stays theirs."""
        if handle is not None:
            super().__init__(device, handle, None)
            return
        found = c_void_p()
        device.call("cuStreamCreate", byref(found), _NON_BLOCKING)
        super().__init__(device, found.value or 0, "cuStreamDestroy_v2")

    def copy_in(self, target: int, source: NDArray[Any]) -> None:
        """Copies an array of the host to an address of the GPU. Raises ValueError unless it lies dense."""
        if source.nbytes:
            self.device.call("cuMemcpyHtoDAsync_v2", target, _dense(source), source.nbytes, self.handle)

    def copy_out(self, target: NDArray[Any], source: int) -> None:
        """Copies from an address of the GPU to an array of the host. Raises ValueError unless it lies dense."""
        if target.nbytes:
            self.device.call("cuMemcpyDtoHAsync_v2", _dense(target), source, target.nbytes, self.handle)

    def copy(self, target: int, source: int, size: int) -> None:
        """Copies bytes within the GPU."""
        if size:
            self.device.call("cuMemcpyDtoDAsync_v2", target, source, size, self.handle)

    def fill(self, target: int, byte: int, size: int) -> None:
        """Sets bytes of the GPU."""
        if size:
            self.device.call("cuMemsetD8Async", target, byte, size, self.handle)

    def wait(self, event: Event) -> None:
        """Has what comes later wait for an event, also of another stream."""
        self.device.call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def synchronize(self) -> None:
        """Waits for the stream's work. Raises DeviceError where a kernel failed: then the context is lost."""
        self.device.call("cuStreamSynchronize", self.handle)

    def capture(self, record: Callable[[], object]) -> Graph:
        """The work that `record` gives this stream, as a graph; nothing of it runs. What it raises ends the capture.

        Streams that `record` has wait for an event of this one take part, if this one waits for theirs at the end."""
        graph = c_void_p()
        with self.device.current():
            self.device.driver.call("cuStreamBeginCapture_v2", self.handle, _RELAXED)
            try:
                record()
            except BaseException:
                with _ignored_device_errors():
                    self.device.driver.call("cuStreamEndCapture", self.handle, byref(graph))
                if graph.value:
                    self.device.driver.destroy("cuGraphDestroy", graph.value)
                raise
            self.device.driver.call("cuStreamEndCapture", self.handle, byref(graph))
            if not graph.value:
                raise DeviceError("the capture of a stream was ended by a call that cannot be captured")
            return Graph(self.device, _Template(self.device, graph.value))

    def captured(self) -> Node:
        """During a capture: the node of what the stream was given last."""
        status, number, graph = c_int(), c_uint64(), c_void_p()
        nodes, count = POINTER(c_void_p)(), c_size_t()
        self.device.call(
            "cuStreamGetCaptureInfo_v2",
            self.handle,
            byref(status),
            byref(number),
            byref(graph),
            byref(nodes),
            byref(count),
        )
        if not count.value:
            raise DeviceError("a node of a graph is asked for outside of a capture")
        return nodes[0] or 0


class _Template(Owned):
    """A graph as it was captured: its nodes are named by those of this one."""

    def __init__(self, device: Device, handle: int) -> None:
        super().__init__(device, handle, "cuGraphDestroy")


class Graph(Owned):
    """Work that was captured, made ready to run as often as is wanted, one run at a time."""

    def __init__(self, device: Device, template: _Template) -> None:
        found = c_void_p()
        device.call("cuGraphInstantiateWithFlags", byref(found), template.handle, 0)
        super().__init__(device, found.value or 0, "cuGraphExecDestroy")
        self._template = template

    def launch(self, stream: Stream) -> None:
        """Gives all of it to a stream. Addresses and modules are those of the capture; they must be there."""
        self.device.call("cuGraphLaunch", self.handle, stream.handle)

    def change(self, node: Node, launch: KernelNode) -> None:
        """Gives the kernel of a node other arguments, for the runs that are started from now on."""
        self.device.call("cuGraphExecKernelNodeSetParams_v2", self.handle, node, byref(launch))


def _dense(array: NDArray[Any]) -> int:
    if not array.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} and strides {array.strides} is copied: expected a dense one")
    return array.ctypes.data


@contextmanager
def _ignored_device_errors() -> Generator[None]:
    try:
        yield
    except DeviceError:
        return
