"""Framed messages from a worker to the process that watches it.

A kernel shares its process's descriptors and may write to any of them. So each message has a mark, its length and a
checksum, and the reader never waits for the rest of one: other bytes are detected, and cannot block or crash the reader.
"""

import os
import pickle
import socket
import struct
import zlib
from multiprocessing.connection import Connection
from typing import Any

_MARK = b"\xffmhc"
_HEAD = struct.Struct("<4sQI")  # mark, length, checksum
_CHUNK = 1 << 18
_MOST = 1 << 34  # bytes of one message; the tensors of a peer's result are the largest


class Garbled(Exception):
    """The bytes that arrived are no message."""


def send(connection: Connection, message: Any) -> None:
    """Write a message.

    Raises:
        OSError: the other end is closed.
    """
    body = pickle.dumps(message)
    left = memoryview(_HEAD.pack(_MARK, len(body), zlib.crc32(body)) + body)
    while left:
        left = left[os.write(connection.fileno(), left) :]


class Reader:
    """Messages that arrive at one end of a pipe; `next` never waits.

    Attributes:
        closed: the other end is closed, and everything that it wrote was read.
    """

    def __init__(self, connection: Connection) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._arrived = bytearray()
        self.closed = False

    def next(self) -> Any | None:
        """Return the next message, or None if it has not arrived completely.

        Raises:
            Garbled: the next bytes are no message. Nothing can be read from then on.
        """
        while (message := self._whole()) is None:
            try:
                more = self._socket.recv(_CHUNK, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError:
                more = b""
            if not more:
                self.closed = True
                return None
            self._arrived += more
        return message

    def close(self) -> None:
        self._socket.close()
        self.closed = True

    def _whole(self) -> Any | None:
        """Remove and return the first complete message of the bytes that arrived; None if there is none."""
        here = self._arrived
        if here[: len(_MARK)] != _MARK[: len(here)]:
            raise Garbled
        if len(here) < _HEAD.size:
            return None
        _, length, checksum = _HEAD.unpack_from(here)
        if length > _MOST:
            raise Garbled
        end = _HEAD.size + length
        if len(here) < end:
            return None
        body = bytes(memoryview(here)[_HEAD.size : end])
        if zlib.crc32(body) != checksum:
            raise Garbled
        del here[:end]
        try:
            return pickle.loads(body)
        except Exception as error:  # its checksum is right, so a kernel wrote it on purpose
            raise Garbled from error
