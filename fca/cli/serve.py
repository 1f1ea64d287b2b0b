"""A page on this machine's own address, made again while a sweep writes runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from fca.types import FcaError

HOSTS = ("localhost", "127.0.0.1", "::1")
POLL_S = 3.0  # between two looks at the store


class _Page(SimpleHTTPRequestHandler):
    """Files of one folder, never from a browser's cache, and no line a request. Only GET and HEAD.

    A web site in the same browser may send requests here under a name of its own that it points at this machine. So
    the host that the request names must be this machine. Its port may differ, as behind a tunnel of ssh.
    """

    def send_head(self) -> BinaryIO | None:
        """Answer with the headers of a file and return its content, or answer with an error and return None."""
        if not self._is_for_this_machine():
            self.send_error(HTTPStatus.FORBIDDEN, explain=f"open {' or '.join(HOSTS)}")
            return None
        name = unquote(self.path.partition("?")[0].partition("#")[0]).lstrip("/")
        if "\0" in name:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return None
        try:
            file = self._file(name or "index.html")
            content = file.open("rb")
        except OSError:  # also of a name that is too long
            self.send_error(HTTPStatus.NOT_FOUND)
            return None

        file_status = os.fstat(content.fileno())
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", self.guess_type(file))
        self.send_header("Content-Length", str(file_status.st_size))
        self.send_header(
            "Last-Modified", self.date_time_string(file_status.st_mtime)
        )  # a page that is open asks for it
        self.end_headers()
        return content

    def _is_for_this_machine(self) -> bool:
        """Whether the request names this machine, once, as its host."""
        hosts = self.headers.get_all("Host") or []
        try:
            return len(hosts) == 1 and urlsplit(f"//{hosts[0]}").hostname in HOSTS
        except ValueError:
            return False

    def _file(self, name: str) -> Path:
        """A file of the folder. Raises FileNotFoundError for a folder, and for what is outside, by links too."""
        root = Path(self.directory).resolve()
        file = (root / name).resolve(strict=True)
        if not (file.is_relative_to(root) and file.is_file()):
            raise FileNotFoundError(name)
        return file

    def end_headers(self) -> None:
        """Also that nothing may be kept."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


class _Server(ThreadingHTTPServer):
    """A server that prints one line for an error, and nothing where a browser went away."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Called with an exception of a request, which ends with it."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            print(f"a request to the page failed: {type(error).__name__}: {error}", file=sys.stderr)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder's index.html, which only this machine can reach, as long as the block runs."""
    with _Server(("127.0.0.1", 0), partial(_Page, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


def follow(state: Callable[[], Hashable], make: Callable[[], object]) -> None:
    """Call `make` whenever `state` has changed, until the process is stopped; a page that cannot be made stays."""
    state_of_page = state()
    while True:
        time.sleep(POLL_S)
        current_state = state()
        if current_state == state_of_page:
            continue

        state_of_page = current_state
        try:
            make()
        except FcaError as error:
            print(f"the page stays as it was: {error}")
