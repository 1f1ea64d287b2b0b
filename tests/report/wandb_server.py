"""A W&B server on this machine that answers, stalls, refuses or is out of order, and can change its mind."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BUCKET = {"id": "b", "name": "r", "displayName": "r", "config": "{}", "sweepName": None, "historyLineCount": 0}
BUCKET["project"] = {"id": "p", "name": "fca", "entity": {"id": "e", "name": "us"}}


class WandbServer:
    """how: "answers", "stalls", or a status such as 500.    asked: the paths of all requests so far."""

    def __init__(self, how):
        self.how, self.asked, self.ended = how, [], threading.Event()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop(self):
        """From now on connections are refused."""
        self.ended.set()
        self.http.shutdown()
        self.http.server_close()

    def handler(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                server.asked.append(self.path)
                if server.how == "stalls":
                    server.ended.wait()
                    return
                answer = json.dumps(reply(body, server.url) if self.path == "/graphql" else {}).encode()
                self.send_response(200 if server.how == "answers" else server.how)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_POST  # noqa: N815

            def log_message(self, *_):
                pass

        return Handler


def reply(body, url):
    """What W&B's client needs to open a run, send its files and close it."""
    asked = json.loads(body)
    if "upsertBucket" in asked["query"]:
        return {"data": {"upsertBucket": {"bucket": BUCKET, "inserted": True}}}
    if "createRunFiles" in asked["query"]:
        files = [{"name": name, "uploadUrl": f"{url}/{name}"} for name in asked["variables"]["files"]]
        return {"data": {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}}
    return {"data": {"viewer": {"id": "v", "entity": "us", "username": "us", "flags": "{}"}, "model": {"bucket": None}}}
