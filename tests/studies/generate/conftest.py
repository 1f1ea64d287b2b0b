"""A service that speaks OpenAI's API on 127.0.0.1: it replies, fails, stalls and refuses as a test scripts it."""

import base64
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

from fca.studies.generate.generators.openai_api import _client
from tests.studies.generate.support.diffusion_pipeline import model  # noqa: F401  a fixture

SECRET = "sk-test-a1b2c3d4e5f6"
STALL = "stall"


class Service(ThreadingHTTPServer):
    """Sends the replies of `script`, the last one again and again; keeps the requests: path, headers, body."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.requests, self.over = [], [], threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def reply_with(self, *script):
        self.script = list(script)

    @property
    def bodies(self):
        return [body for _, _, body in self.requests]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        next_reply = self.server.script.pop(0) if len(self.server.script) > 1 else self.server.script[0]
        if next_reply == STALL:
            self.server.over.wait()
            self.close_connection = True
            return
        status, content, headers = next_reply
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Silent."""


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    made = []
    monkeypatch.setattr(
        "fca.studies.generate.generators.openai_api._client", lambda *args: made.append(_client(*args)) or made[-1]
    )
    served = Service()
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.over.set()
    served.shutdown()
    thread.join()
    for client in made:
        client.close()
    _client.cache_clear()
    served.server_close()


def reply(status, body, **headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return status, content, {name.replace("_", "-"): str(value) for name, value in headers.items()}


def failure(status, message="no", code=None, **headers):
    return reply(status, {"error": {"message": message, "type": "error", "code": code}}, **headers)


def image_reply(pixels, mode="RGB", **more):
    """The reply to images.generate."""
    file = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8), mode=None).convert(mode).save(file, "PNG")
    image = {"b64_json": base64.b64encode(file.getvalue()).decode(), **more}
    return reply(200, {"created": 1760000000, "data": [image]})


def chat_reply(content, **more):
    """The reply to chat.completions."""
    message = {"role": "assistant", "content": content, "refusal": more.pop("refusal", None)}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **more}
    return reply(200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
