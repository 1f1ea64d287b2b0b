"""A W&B server on this machine: it speaks the protocol as far as W&B's own uploader needs it, and keeps what it gets.

It can stall, fail, refuse, be busy for a while (429), or die, and change its mind.
"""

import gzip
import json
import re
import threading
import time
from collections import defaultdict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROJECT = {
    "internalId": "p",
    "entityName": "us",
    "createdAt": "2026-01-01T00:00:00",
    "isBenchmark": False,
    "user": None,
}
LAST = {"endCursor": None, "hasNextPage": False}
PLACE = {"id": "p", "name": "fca", "entity": {"id": "e", "name": "us"}}


class Entry:
    """What the server knows of one run: plain configuration, summary, history lines, files, tables."""

    def __init__(self):
        self.config, self.summary, self.history, self.files, self.state = {}, {}, [], {}, None
        self.tags, self.group, self.job_type, self.name, self.ended = None, None, None, None, None

    @property
    def values(self):
        """The configuration, as W&B shows it."""
        return {key: value["value"] for key, value in self.config.items() if key != "_wandb"}

    def table(self, key):
        """The rows of a logged table, as dictionaries."""
        shown = self.summary[key]
        content = next(json.loads(body) for name, body in self.files.items() if name == shown["path"])
        return [dict(zip(content["columns"], line, strict=True)) for line in content["data"]]


class WandbServer:
    """how: "answers", "stalls", or a status such as 500.    asked: the paths of all requests so far.

    busy: so many requests are answered by 429 first.    retry_after: what these answers ask for, in seconds.
    delay: seconds before an answer.    dies_after: so many requests, all others are answered by 500.
    runs: what arrived, by run id.    most: the largest number of requests at a time.    artifacts: names, as committed.
    """

    def __init__(self, how="answers", busy=0, retry_after="0"):
        self.how, self.asked, self.ended, self.busy, self.retry_after = how, [], threading.Event(), busy, retry_after
        self.runs, self.artifacts, self.refused, self.views = defaultdict(Entry), [], [], []
        self.lock, self.at_once, self.most, self.dies_after, self.delay = threading.RLock(), 0, 0, None, 0.0
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

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
                time.sleep(server.delay)
                if server.how == "stalls":
                    server.ended.wait()
                    return
                with server.lock:
                    server.at_once += 1
                    server.most = max(server.most, server.at_once)
                    status = server.status()
                    if self.headers.get("content-encoding") == "gzip":
                        body = gzip.decompress(body)
                    answer = json.dumps(server.reply(self.path, body) if status == 200 else {}).encode()
                with suppress(OSError):
                    self.send_response(status)
                    if status == 429:
                        self.send_header("retry-after", server.retry_after)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                with server.lock:
                    server.at_once -= 1

            do_GET = do_PUT = do_POST  # noqa: N815

            def log_message(self, *_):
                pass

        return Handler

    def status(self):
        if self.busy > 0:
            self.busy -= 1
            self.refused.append(time.monotonic())
            return 429
        if self.dies_after is not None and len(self.asked) > self.dies_after:
            return 500
        return 200 if self.how == "answers" else self.how

    def reply(self, path, body):
        if path == "/graphql":
            asked = json.loads(body)
            name = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
            return {"data": self.answer(name[1] if name else "", asked.get("variables") or {})}
        if found := re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", path):
            return self.streamed(self.runs[found[1]], json.loads(body))
        if found := re.fullmatch(r"/up/([^/]+)/(.+)", path):
            self.runs[found[1]].files[found[2]] = body
        return {}

    def answer(self, name, given):  # noqa: C901
        """One GraphQL operation by its name."""
        match name:
            case "RunResumeStatus":
                known = given["name"] in self.runs
                return {"model": {**PLACE, "bucket": self.bucket(given["name"]) if known else None}}
            case "UpsertBucket":
                return {"upsertBucket": {"bucket": self.upserted(given), "inserted": True}}
            case "CreateRunFiles":
                files = [{"name": n, "uploadUrl": f"{self.url}/up/{given['run']}/{n}"} for n in given["files"]]
                return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
            case "ServerFeaturesQuery":
                return {"serverInfo": {"features": []}}
            case "CreateArtifact":
                made = given["input"]["artifactCollectionName"]
                sequence = {"id": "s", "latestArtifact": None}
                artifact = {"id": made, "state": "PENDING", "artifactSequence": sequence}
                return {"createArtifact": {"artifact": artifact}}
            case "CreateArtifactManifest":
                file = {"id": "f", "uploadUrl": f"{self.url}/manifest", "uploadHeaders": []}
                return {"createArtifactManifest": {"artifactManifest": {"id": "m", "file": file}}}
            case "CreateArtifactFiles":
                return {"createArtifactFiles": {"files": {"edges": [self.stored(s) for s in specs(given)]}}}
            case "CommitArtifact":
                self.artifacts.append(given["artifactID"])
                return {"commitArtifact": {"artifact": {"id": given["artifactID"], "digest": "d"}}}
            case "UpsertView2" | "upsertView" | "UpsertView":
                self.views.append({**given, "spec": json.loads(given["spec"])})
                view = {**given, "id": f"view{len(self.views)}", "type": "runs", "createdAt": PROJECT["createdAt"]}
                view |= {"updatedAt": PROJECT["createdAt"], "user": {"id": "v", "username": "us", "name": "us"}}
                view |= {"project": {**PLACE, "entityName": "us"}}
                return {"upsertView": {"view": view, "inserted": True}}
            case "UpsertModel" | "upsertModel":
                return {"upsertModel": {"project": PLACE, "model": PLACE, "inserted": False}}
            case "ArtifactType":
                return {"project": None}
            case "ClientIDMapping":
                return {"clientIDMapping": {"serverID": "a"}}
        listed = {"edges": [{"node": {**PLACE, **PROJECT}, "cursor": "c"}], "pageInfo": LAST, "totalCount": 1}
        viewer = {"id": "v", "entity": "us", "username": "us", "flags": "{}"}
        return {"viewer": viewer, "project": {**PLACE, **PROJECT}, "projects": listed, "models": listed}

    def stored(self, spec):
        place = f"{self.url}/artifact/{spec['artifactID']}/{spec['name']}"
        node = {"storagePath": spec["name"], "uploadUrl": place, "uploadHeaders": [], "uploadMultipartUrls": None}
        return {"node": {**node, "artifact": {"id": spec["artifactID"]}}}

    def bucket(self, run_id):
        run = self.runs[run_id]
        found = {"id": "b", "name": run_id, "displayName": run.name, "sweepName": None, "project": PLACE}
        tail = json.dumps([json.dumps(line) for line in run.history[-1:]])
        counts = {"historyLineCount": len(run.history), "logLineCount": 0, "eventsLineCount": 0}
        rest = {"config": json.dumps(run.config), "summaryMetrics": json.dumps(run.summary), "tags": run.tags}
        return {**found, **counts, **rest, "historyTail": tail, "eventsTail": "[]", "notes": None, "wandbConfig": "{}"}

    def upserted(self, given):
        run = self.runs[given["name"]]
        run.config.update(json.loads(given.get("config") or "{}"))
        run.tags, run.group = given.get("tags") or run.tags, given.get("groupName") or run.group
        run.job_type, run.name = given.get("jobType") or run.job_type, given.get("displayName") or run.name
        return self.bucket(given["name"])

    def streamed(self, run, sent):
        for name, part in (sent.get("files") or {}).items():
            lines = [json.loads(line) for line in part["content"]] if name.endswith((".json", ".jsonl")) else []
            if name == "wandb-history.jsonl":
                run.history[part["offset"] :] = lines
            elif name == "wandb-summary.json":
                run.summary = lines[-1]
        if sent.get("complete"):
            run.ended = sent.get("exitcode")
        return {}


def specs(given):
    return given["input"]["artifactFiles"]
