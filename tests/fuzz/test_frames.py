"""Messages of a worker, where a kernel may write to the same pipe."""

import os
import struct
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest

from mhc.fuzz.worker.frames import Garbled, Reader, send
from mhc.fuzz.worker.protocol import Begun, Done


@pytest.fixture
def pipe() -> Iterator[tuple[Reader, Connection]]:
    here, there = Pipe()
    reader = Reader(here)
    yield reader, there
    reader.close()
    here.close()
    there.close()


def test_messages_arrive_in_order_and_nothing_is_waited_for(pipe: tuple[Reader, Connection]) -> None:
    reader, there = pipe
    assert reader.next() is None
    many = [Begun(case="x" * size, number=size) for size in (0, 1, 100, 70_000)]
    for message in many:
        send(there, message)
    assert [reader.next() for _ in many] == many
    assert reader.next() is None
    assert not reader.closed


def test_a_message_that_arrives_in_parts_is_one_when_it_is_whole(pipe: tuple[Reader, Connection]) -> None:
    reader, there = pipe
    other, end = Pipe()
    send(end, Done(drawing=1.5))
    text = os.read(other.fileno(), 1 << 16)
    for part in text[:-1]:
        os.write(there.fileno(), bytes([part]))
        assert reader.next() is None
    os.write(there.fileno(), text[-1:])
    assert reader.next() == Done(drawing=1.5)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0",
        os.urandom(64).replace(b"\xff", b"\0"),
        struct.pack("!i", 1 << 30),  # as `Connection.send` would announce a gigabyte
        struct.pack("<4sQI", b"\xffmhc", 1 << 60, 0),
        struct.pack("<4sQI", b"\xffmhc", 3, 0) + b"abc",
        struct.pack("<4sQI", b"\xffmhc", 3, 0x352441C2) + b"abc",  # its checksum is right, and it is no pickle
    ],
    ids=["a byte", "noise", "a length", "an exabyte", "a wrong checksum", "no pickle"],
)
def test_what_is_no_message_is_seen_at_once_behind_those_that_are(pipe: tuple[Reader, Connection], garbage: bytes) -> None:
    reader, there = pipe
    send(there, Done())
    os.write(there.fileno(), garbage)
    assert reader.next() == Done()
    with pytest.raises(Garbled):
        reader.next()


def test_the_end_is_seen_behind_the_last_message(pipe: tuple[Reader, Connection]) -> None:
    reader, there = pipe
    send(there, Done())
    there.close()
    assert reader.next() == Done()
    assert reader.next() is None
    assert reader.closed
