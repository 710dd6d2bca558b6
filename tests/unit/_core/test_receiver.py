"""The thread that receives bytes from sockets into memory."""

from __future__ import annotations

import gc
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kconsumer._core.net import Receiver

Pair = tuple[socket.socket, socket.socket]
ECONNRESET = 104


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Yields a receiver and closes it afterwards."""
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Yields two connected sockets."""
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def taken(receiver: Receiver) -> tuple[Any, bytes | None, int, int]:
    """Returns the next job that ends."""
    while (found := receiver.take()) is None:
        readable, _, _ = select.select([receiver.fileno()], [], [], 10)
        assert readable
    return found


def test_memory_is_filled(receiver: Receiver, pair: Pair) -> None:
    """Bytes that arrive in several segments fill the view; bytes after them remain in the socket."""
    near, far = pair
    memory = bytearray(300_000)
    receiver.begin(near.fileno(), memory, "tag", False)
    sent = os.urandom(300_000)
    for start in range(0, len(sent), 7_000):
        far.sendall(sent[start : start + 7_000])
    far.sendall(b"rest")
    assert ("tag", None, 300_000, 0) == taken(receiver)
    assert sent == memory
    assert b"rest" == near.recv(100)
    assert 0 == receiver.completed
    assert receiver.take() is None
    assert ([], [], []) == select.select([receiver.fileno()], [], [], 0)


@pytest.mark.parametrize("sent", [b"\0\0\0\5hello", b"\0\0\0\0", b"\0\0\0\x0a0123456789"])
def test_a_frame_that_fits(receiver: Receiver, pair: Pair, sent: bytes) -> None:
    """The receiver takes the size and that number of bytes, whether they arrive one by one or at once, and no byte
    more.
    """
    near, far = pair
    for step in (1, 100):
        memory = bytearray(10)
        receiver.begin(near.fileno(), memory, near, True)
        for start in range(0, len(sent), step):
            far.sendall(sent[start : start + step])
        far.sendall(b"rest")
        assert (near, sent[:4], len(sent) - 4, 0) == taken(receiver)
        assert sent[4:] == memory[: len(sent) - 4]
        assert b"rest" == near.recv(100)


@pytest.mark.parametrize("prefix", [b"\0\0\0\x0b", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_a_frame_that_does_not_fit(receiver: Receiver, pair: Pair, prefix: bytes) -> None:
    """If a frame is larger than the memory, only its size is taken and its bytes remain in the socket."""
    near, far = pair
    receiver.begin(near.fileno(), bytearray(10), None, True)
    far.sendall(prefix + b"frame")
    assert (None, prefix, 0, 0) == taken(receiver)
    assert b"frame" == near.recv(100)


@pytest.mark.parametrize(("sent", "framed"), [(b"", False), (b"abc", False), (b"\0\0", True), (b"\0\0\0\5ab", True)])
def test_the_peer_closes(receiver: Receiver, pair: Pair, sent: bytes, framed: bool) -> None:
    """A job ends with the bytes received so far when the peer closes."""
    near, far = pair
    receiver.begin(near.fileno(), bytearray(10), None, framed)
    far.sendall(sent)
    far.close()
    expected = (None, sent[:4], len(sent[4:]), 0) if framed else (None, None, len(sent), 0)
    assert expected == taken(receiver)


def test_a_socket_that_fails(receiver: Receiver) -> None:
    """A reset connection ends the job with its errno."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near:
            near.sendall(b"unread")
            receiver.begin(near.fileno(), bytearray(10), None, False)
            far.recv(1)
            far.close()
            assert (None, None, 0, ECONNRESET) == taken(receiver)


def test_a_cancelled_job_gives_everything_back(receiver: Receiver, pair: Pair) -> None:
    """After a job is cancelled its memory can be resized, its socket can be read by other code, and it reports no
    result. Cancelling a job that has ended does nothing, even if its slot is used again.
    """
    near, far = pair
    memory = bytearray(10)
    name = receiver.begin(near.fileno(), memory, None, False)
    assert name is not None
    with pytest.raises(BufferError):
        memory.append(0)
    receiver.cancel(name)
    memory.append(0)
    far.sendall(b"abc")
    assert b"abc" == near.recv(100)
    assert 0 == receiver.completed
    other = receiver.begin(near.fileno(), memory, "other", False)
    assert other != name
    receiver.cancel(name)
    far.sendall(bytes(11))
    assert ("other", None, 11, 0) == taken(receiver)


def test_many_jobs_at_once(receiver: Receiver) -> None:
    """Sixty-four sockets are served at the same time; another job is refused until one of these has been taken."""
    with ExitStack() as open_sockets:
        pairs = [socket.socketpair() for _ in range(65)]
        for both in pairs:
            for one in both:
                open_sockets.enter_context(one)
        check_many_jobs(receiver, pairs)


def check_many_jobs(receiver: Receiver, pairs: list[Pair]) -> None:
    """Fill a view from each pair at the same time."""
    memories = [bytearray(1000) for _ in pairs]
    begun = [receiver.begin(near.fileno(), memories[i], i, False) for i, (near, _) in enumerate(pairs)]
    assert [None] == [name for name in begun if name is None]
    assert begun[64] is None
    for number, (_, far) in enumerate(pairs):
        far.sendall(bytes([number]) * 1000)
    found = {taken(receiver)[0] for _ in range(64)}
    assert set(range(64)) == found
    assert all(bytes([number]) * 1000 == memories[number] for number in found)
    assert receiver.begin(pairs[64][0].fileno(), memories[64], "last", False) is not None
    assert ("last", None, 1000, 0) == taken(receiver)


def test_closing_ends_the_thread_and_its_jobs(pair: Pair) -> None:
    """After close() the memory of jobs can be used again, and no thread or descriptor remains. A new job starts a new
    thread.
    """
    threads, descriptors = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    receiver = Receiver()
    for _ in range(2):
        memory = bytearray(10)
        receiver.begin(pair[0].fileno(), memory, None, False)
        assert threads < len(os.listdir("/proc/self/task"))
        assert "<Receiver of 1 jobs>" == repr(receiver)
        receiver.close()
        memory.append(0)
        receiver.close()
        assert (threads, descriptors) == (len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))
    assert receiver.take() is None
    assert 0 == receiver.completed


def test_memory_that_cannot_be_written(receiver: Receiver, pair: Pair) -> None:
    """Read-only memory is refused."""
    with pytest.raises(BufferError):
        receiver.begin(pair[0].fileno(), b"bytes", None, False)  # type: ignore[arg-type,unused-ignore]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is what is tested
def test_a_forked_child_closes_without_a_thread(receiver: Receiver, pair: Pair) -> None:
    """In a forked child, which lacks the thread, close() returns at once; the parent's job continues."""
    near, far = pair
    receiver.begin(near.fileno(), bytearray(3), None, False)
    child = os.fork()
    if child == 0:
        receiver.close()
        os._exit(0)
    assert 0 == os.waitpid(child, 0)[1]
    far.sendall(b"abc")
    assert (None, None, 3, 0) == taken(receiver)


def test_one_that_was_never_closed_goes_with_the_cycle_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver in a reference cycle is freed, and raises nothing, even if the garbage collector clears its table of
    jobs first.
    """
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: unraisable.append(problem.exc_value))
    receiver = Receiver()
    memory = bytearray(8)
    here, there = socket.socketpair()
    with here, there:
        receiver.begin(here.fileno(), memoryview(memory), None, False)
        holder: list[object] = [receiver]
        holder.append(holder)
        del receiver, holder
        gc.collect()
    memory.append(0)  # which a view of it would forbid
    assert [] == unraisable


def test_progress_of_a_job(receiver: Receiver, pair: Pair) -> None:
    """The number of received bytes can be read before a job ends; for a job that has ended there is none."""
    near, far = pair
    job = receiver.begin(near.fileno(), bytearray(1000), "tag", False)
    assert job is not None
    assert ({job: "tag"}, 0) == (receiver.held(), receiver.filled(job))
    far.sendall(bytes(400))
    deadline = time.monotonic() + 10
    while receiver.filled(job) < 400:
        assert time.monotonic() < deadline
    receiver.cancel(job)
    assert ({}, 0) == (receiver.held(), receiver.filled(job))


LOW_WATER = 1 << 16 if sys.platform == "linux" else 1
"""The number of bytes that a socket must have to wake the thread, while it receives a large response."""


@pytest.fixture
def tcp_pair() -> Iterator[Pair]:
    """Yields two sockets that are connected over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        with far:
            yield near, far


def low_water(near: socket.socket) -> int:
    """Returns how many bytes the socket must have before it is reported as readable."""
    return near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def wait_until(done: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("cancelled", [False, True])
def test_the_thread_is_not_woken_for_each_segment(receiver: Receiver, tcp_pair: Pair, cancelled: bool) -> None:
    """In the middle of a large frame the socket is reported as readable when it has many bytes, and after the job when
    it has one byte.
    """
    near, far = tcp_pair
    job = receiver.begin(near.fileno(), bytearray(1 << 20), "tag", True)
    assert job is not None
    far.sendall((1 << 20).to_bytes(4, "big"))
    wait_until(lambda: low_water(near) == LOW_WATER)
    if cancelled:
        receiver.cancel(job)
    else:
        far.sendall(bytes(1 << 20))
        assert ("tag", (1 << 20).to_bytes(4, "big"), 1 << 20, 0) == taken(receiver)
    assert 1 == low_water(near)
    far.sendall(b"x")
    assert any(select.select([near], [], [], 10))


def test_few_bytes_are_received_soon(receiver: Receiver, tcp_pair: Pair) -> None:
    """A part of a large frame that would not wake the thread is received all the same, so that timeouts see it."""
    near, far = tcp_pair
    job = receiver.begin(near.fileno(), bytearray(1 << 20), "tag", False)
    assert job is not None
    far.sendall(b"x")
    wait_until(lambda: receiver.filled(job) == 1 and low_water(near) == LOW_WATER)
    far.sendall(b"x")
    wait_until(lambda: receiver.filled(job) == 2)


BLIND = """
import os, resource, select, socket, time
from kconsumer._core.net import Receiver
near, far = socket.socketpair()
receiver = Receiver()
receiver.fileno()
memory = bytearray(500_000)
# poll() refuses more descriptors than this, and from now on fails with EINVAL.
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
receiver.begin(near.fileno(), memory, "tag", False)
used = time.process_time()
time.sleep(0.5)
assert time.process_time() - used < 0.25, time.process_time() - used
far.setblocking(True)
sent = os.urandom(500_000)
far.sendall(sent)
deadline = time.monotonic() + 10
while not receiver.completed:
    assert time.monotonic() < deadline
    time.sleep(0.01)
assert ("tag", None, 500_000, 0) == receiver.take()
assert sent == memory
receiver.close()
resource.setrlimit(resource.RLIMIT_NOFILE, limits)  # a leak checker opens files when the process ends
"""


def test_poll_that_fails() -> None:
    """If poll fails, because the process lowered its limit of descriptors, the thread does not spin and continues to
    receive.
    """
    done = subprocess.run([sys.executable, "-c", BLIND], capture_output=True, text=True, timeout=60, check=False)
    assert (0, "") == (done.returncode, done.stderr)
