# SPDX-License-Identifier: Apache-2.0
"""Damage to objects that lie in a second tier, done behind LMCache's back.

`Objects` is a store as its own server or file system shows it: names and bytes,
no LMCache. Each fault strikes one object of it, as a disk, a wrong copy or a
careless operator would; `other` is a second object of the same size. What the
bytes mean is not looked at. Fault tests and bench/l2_faults.py call this.
"""

from __future__ import annotations

import socket
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

from kvseal.errors import StoreError


class Objects(ABC):
    """All objects of one store. A name is that of the store, made by LMCache from a key."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all objects."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return an object's bytes."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Put `data` in the place of an object."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an object."""

    def named(self, *parts: str) -> str:
        """Return the one name that holds all `parts`.

        Raises:
            StoreError: when there is none, or several.
        """
        found = [name for name in self.names() if all(part in name for part in parts)]
        if len(found) != 1:
            raise StoreError("not one object", value=found, expected=f"one with {parts}")
        return found[0]


class FolderObjects(Objects):
    """Files below a folder, as `fs` and `fs_native` make them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Return the paths of the files, relative to the folder."""
        return [str(path.relative_to(self._folder)) for path in self._folder.rglob("*.data")]

    def read(self, name: str) -> bytes:
        """Read a file."""
        return (self._folder / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Write over a file, in place."""
        (self._folder / name).write_bytes(data)

    def remove(self, name: str) -> None:
        """Unlink a file."""
        (self._folder / name).unlink()


class RespObjects(Objects):
    """Keys of a server that speaks RESP (Redis, Valkey) on loopback; each command a connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    def names(self) -> list[str]:
        """Return all keys."""
        return [name.decode() for name in self.command(b"KEYS", b"*")]

    def read(self, name: str) -> bytes:
        """Return a value."""
        value: bytes = self.command(b"GET", name.encode())
        return value

    def write(self, name: str, data: bytes) -> None:
        """Set a value."""
        self.command(b"SET", name.encode(), data)

    def remove(self, name: str) -> None:
        """Delete a key."""
        self.command(b"DEL", name.encode())

    def command(self, *words: bytes) -> Any:
        """Send one command and return its answer: bytes, a number, a list or None.

        Raises:
            StoreError: when the server answers with an error.
        """
        request = b"*%d\r\n" % len(words)
        request += b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        with socket.create_connection(("127.0.0.1", self._port), timeout=10) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as answer:
                return _resp_value(answer)


def _resp_value(answer: Any) -> Any:
    head = answer.readline().rstrip(b"\r\n")
    kind, rest = head[:1], head[1:]
    if kind == b"-":
        raise StoreError("the server refuses a command", value=rest.decode(errors="replace"))
    if kind == b"$":
        return None if rest == b"-1" else answer.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [_resp_value(answer) for _ in range(int(rest))]
    return int(rest) if kind == b":" else rest


class S3Objects(Objects):
    """Objects of moto's bucket on loopback: it wants to see a signature and checks none."""

    HEADERS: ClassVar[Mapping[str, str]] = {
        "Authorization": "AWS4-HMAC-SHA256 Credential=kvseal/20260101/us-east-1/s3/aws4_request, "
        "SignedHeaders=host, Signature=0",
        "Content-Type": "application/octet-stream",
    }

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/"

    def names(self) -> list[str]:
        """Return the keys of the first page of the listing."""
        page = ElementTree.fromstring(self._ask("GET", "?list-type=2"))  # noqa: S314 - loopback
        return [key.text or "" for key in page.iterfind("{*}Contents/{*}Key")]

    def read(self, name: str) -> bytes:
        """Get an object."""
        return self._ask("GET", urllib.parse.quote(name))

    def write(self, name: str, data: bytes) -> None:
        """Put an object."""
        self._ask("PUT", urllib.parse.quote(name), data)

    def remove(self, name: str) -> None:
        """Delete an object."""
        self._ask("DELETE", urllib.parse.quote(name))

    def _ask(self, method: str, path: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - loopback
            self._url + path, data=data, method=method, headers=dict(self.HEADERS)
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
            body: bytes = answer.read()
            return body


Fault = Callable[[Objects, str, str], None]


def lost(objects: Objects, name: str, other: str) -> None:
    """The object is gone."""
    objects.remove(name)


def cut(objects: Objects, name: str, other: str) -> None:
    """The last byte is missing."""
    objects.write(name, objects.read(name)[:-1])


def halved(objects: Objects, name: str, other: str) -> None:
    """The second half is missing."""
    data = objects.read(name)
    objects.write(name, data[: len(data) // 2])


def emptied(objects: Objects, name: str, other: str) -> None:
    """The object is there and has no bytes."""
    objects.write(name, b"")


def lengthened(objects: Objects, name: str, other: str) -> None:
    """Another page stands behind it."""
    objects.write(name, objects.read(name) + bytes(4096))


def bit_flipped(objects: Objects, name: str, other: str) -> None:
    """One bit in the middle of the payload is another."""
    data = bytearray(objects.read(name))
    data[len(data) // 3] ^= 4
    objects.write(name, bytes(data))


def zeroed(objects: Objects, name: str, other: str) -> None:
    """All bytes are zero, the size is right: a file system after a crash."""
    objects.write(name, bytes(len(objects.read(name))))


def swapped(objects: Objects, name: str, other: str) -> None:
    """Two objects have each other's names."""
    one, two = objects.read(name), objects.read(other)
    objects.write(name, two)
    objects.write(other, one)


FAULTS: Mapping[str, Fault] = {
    fault.__name__: fault
    for fault in (lost, cut, halved, emptied, lengthened, bit_flipped, zeroed, swapped)
}
