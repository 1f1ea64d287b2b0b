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
    """Answers requests for the files of one folder; only GET and HEAD.

    A web site in the same browser may send requests here under a name of its own that it points at this machine. So
    the host that a request names must be this machine. Its port may differ, as behind a tunnel of ssh.
    """

    def send_head(self) -> BinaryIO | None:
        """Answer a request: send the headers of the requested file, and return the open file.

        If the request is refused or there is no such file, send an error and return None. The base class calls this
        method, and after a GET sends the content of the returned file.
        """
        if not self._is_for_this_machine():
            self.send_error(HTTPStatus.FORBIDDEN, explain=f"open {' or '.join(HOSTS)}")
            return None
        path_without_query = self.path.partition("?")[0].partition("#")[0]
        name = unquote(path_without_query).lstrip("/")  # relative to the served folder
        if "\0" in name:  # Path would raise ValueError
            self.send_error(HTTPStatus.BAD_REQUEST)
            return None
        try:
            file = self._file(name or "index.html")
            content = file.open("rb")
        except OSError:  # no such file, a file outside of the folder, or a name that is too long
            self.send_error(HTTPStatus.NOT_FOUND)
            return None

        file_status = os.fstat(content.fileno())
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", self.guess_type(file))
        self.send_header("Content-Length", str(file_status.st_size))
        # a page that is open in a browser asks for this time, and loads itself again when the time changes
        self.send_header("Last-Modified", self.date_time_string(file_status.st_mtime))
        self.end_headers()
        return content

    def _is_for_this_machine(self) -> bool:
        """Whether the request names exactly one host, and this is the machine itself."""
        hosts = self.headers.get_all("Host") or []
        try:
            return len(hosts) == 1 and urlsplit(f"//{hosts[0]}").hostname in HOSTS
        except ValueError:  # no valid host
            return False

    def _file(self, name: str) -> Path:
        """The absolute path of a file in the served folder.

        name: its path relative to that folder. Raises FileNotFoundError if it is missing or no file, or if it lies
        outside of the folder, by .. or by a symbolic link.
        """
        root = Path(self.directory).resolve()
        file = (root / name).resolve(strict=True)
        if not (file.is_relative_to(root) and file.is_file()):
            raise FileNotFoundError(name)
        return file

    def end_headers(self) -> None:
        """Add a header that forbids browsers to keep the file, then end the headers."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing; the base class would print a line for each request."""


class _Server(ThreadingHTTPServer):
    """A server that prints one line for an error, and nothing if a browser closed the connection."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Print the exception that ended a request; called while it is handled."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            print(f"a request to the page failed: {type(error).__name__}: {error}", file=sys.stderr)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder while the body runs; yields the address of its index.html, which only this machine can reach."""
    with _Server(("127.0.0.1", 0), partial(_Page, directory=folder)) as server:  # 0: a free port
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


def follow(state: Callable[[], Hashable], make: Callable[[], object]) -> None:
    """Make a page anew whenever its sources have changed, until the process is stopped.

    state: returns a value that changes with the sources; it is called every POLL_S seconds.
    make:  makes the page. If it raises FcaError, the page stays as it was, and the error is printed.
    """
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
