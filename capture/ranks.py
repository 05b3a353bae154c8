"""A step that several processes take together: one rank for each GPU of this host, or each on the CPU."""

from __future__ import annotations

import multiprocessing
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from capture.device import Device
from capture.errors import CaptureError

HOST = "127.0.0.1"
START_LIMIT = timedelta(seconds=120)
END_LIMIT_S = 10.0
GO = b"."

Make = Callable[[], Callable[[], object]]


def add_ranks(parser: ArgumentParser) -> None:
    """How many processes take part."""
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="processes, each with its GPU (2)")


class Ranks:
    """This process as rank 0, and the others, which take every step that this one takes.

    Only rank 0 is recorded. The others are told of each step through a pipe, a few microseconds
    before this process begins it, so that any number of steps may be taken.
    """

    def __init__(self, make: Make, device: Device, size: int) -> None:
        """`make` builds a rank's step once the process group is there; it must be importable."""
        self._make = make
        self._device = device
        self._size = size
        self._orders: list[Connection] = []
        self._own: Callable[[], object] | None = None

    def step(self) -> None:
        """One step on every rank; only inside of `together`."""
        if self._own is None:
            raise CaptureError("the other ranks are not there: take steps inside of together()")
        try:
            for orders in self._orders:
                orders.send_bytes(GO)
        except OSError as error:
            raise CaptureError("another rank ended; its own error is above") from error
        self._own()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Starts the other ranks and the process group, and ends both."""
        import torch
        from torch import distributed

        if self._size < 1 or (self._device.is_gpu and torch.cuda.device_count() < self._size):
            raise CaptureError(f"--ranks {self._size} needs as many GPUs, and at least 1")
        store = distributed.TCPStore(HOST, 0, is_master=True, wait_for_workers=False, timeout=START_LIMIT)
        others = [self._start(rank, store.port) for rank in range(1, self._size)]
        try:
            _join(self._device, store, 0, self._size)
            self._own = self._make()
            yield
            self._device.synchronize()
        finally:
            self._end(others)

    def _start(self, rank: int, port: int) -> BaseProcess:
        import torch

        context = multiprocessing.get_context("spawn")
        taken, orders = context.Pipe(duplex=False)
        arguments = (self._make, self._device, rank, self._size, port, torch.initial_seed(), taken)
        process = context.Process(target=_follow, args=arguments, daemon=True)
        process.start()
        taken.close()  # else the other end would not see this one closed
        self._orders.append(orders)
        return process

    def _end(self, others: list[BaseProcess]) -> None:
        from torch import distributed

        for orders in self._orders:
            orders.close()
        self._orders, self._own = [], None
        if distributed.is_initialized():
            distributed.destroy_process_group()
        for process in others:
            process.join(END_LIMIT_S)
            if process.is_alive():
                process.kill()
                process.join()


def _join(device: Device, store: object, rank: int, size: int) -> None:
    """Enter the process group; tensors go to this rank's GPU from here on."""
    import torch
    from torch import distributed

    if device.is_gpu:
        torch.cuda.set_device(rank)
    backend = device.pick("nccl", "gloo")
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=START_LIMIT)


def _follow(make: Make, device: Device, rank: int, size: int, port: int, seed: int, orders: Connection) -> None:
    """In the other process: a step for each order, until rank 0 closes the pipe."""
    import torch
    from torch import distributed

    torch.manual_seed(seed)
    _join(device, distributed.TCPStore(HOST, port, is_master=False, timeout=START_LIMIT), rank, size)
    step = make()
    try:
        while orders.recv_bytes():
            step()
    except EOFError:
        device.synchronize()
    distributed.destroy_process_group()
