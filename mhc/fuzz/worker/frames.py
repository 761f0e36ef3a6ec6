"""How messages travel from a worker to the process that watches it, in the presence of kernels that write anywhere.

A kernel shares its process's descriptors. So each message is framed by a mark, its length and a checksum, and the reader
never waits for the rest of one: what is no message is seen as such, and cannot block or crash the reader.
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
_MOST = 1 << 34  # bytes of one message; tensors of a partner's results are the largest


class Garbled(Exception):
    """What arrived is no message."""


def send(connection: Connection, message: Any) -> None:
    """Write a message.

    Raises:
        OSError: nobody reads any more.
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
        """The next message, or None where it has not arrived as a whole yet.

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
        """The first message of what has arrived, which it is taken off; None where there is no whole one."""
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
        except Exception as error:  # with a right checksum it is no accident
            raise Garbled from error
