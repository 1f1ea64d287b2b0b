"""A page on this machine's own address, made again while a sweep writes runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from fca.types import FcaError

EVERY_S = 3.0  # how often the store is looked at


class _Quiet(SimpleHTTPRequestHandler):
    """Files of the page, never from a browser's cache, and no line a request."""

    def end_headers(self) -> None:
        """Also that nothing may be kept."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder's index.html, which only this machine can reach, as long as the block runs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


def follow(state: Callable[[], Hashable], make: Callable[[], object]) -> None:
    """Call `make` whenever `state` has changed, until the process is stopped; a page that cannot be made stays."""
    last = state()
    while True:
        time.sleep(EVERY_S)
        if (now := state()) != last:
            last = now
            try:
                make()
            except FcaError as error:
                print(f"the page stays as it was: {error}")
