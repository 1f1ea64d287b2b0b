"""`fca generate` with a service on 127.0.0.1: what is kept, what it cost, and that the key is nowhere."""

import json

import numpy as np
import pytest

from fca.studies.generate.commands import generate
from tests.studies.generate.conftest import SECRET, chat_reply, failure, image_reply
from tests.studies.generate.support.chat import NINE, as_json

IMAGE, DESCRIBED = image_reply(np.arange(8 * 8 * 3).reshape(8, 8, 3)), chat_reply(as_json(NINE))
PLAN = """\
name: two
classes: {n02099601: golden retriever, n07753592: banana}
attributes: {view: []}
descriptions: {}
per_level: 1
seed: 0
"""


@pytest.fixture
def generated(fca, service, tmp_path):
    """Run `fca generate` with the generator and the writer at the service; returns exit code, output, errors."""
    (tmp_path / "two.yaml").write_text(PLAN)

    def call(*words):
        keys = (f"base_url={service.url}", "retries=0")
        service_keys = [f"{component}.{key}" for component in ("generator", "writer") for key in keys]
        prices = ["generator.image_price=0.5", "writer.call_price=0.25"]
        command = ["generator=openai", "writer=openai", "plan.file=two.yaml", *service_keys, *prices, *words]
        return fca(*command, door=generate)

    return call


def contents(tmp_path):
    """The journal's lines, and all bytes of all files."""
    root = tmp_path / "outputs" / "generated" / "two"
    lines = [json.loads(line) for line in (root / "journal.jsonl").read_text().splitlines()]
    return lines, b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_descriptions_images_and_a_refusal_are_kept_and_paid_for_and_the_key_is_nowhere(generated, service, tmp_path):
    refused = failure(400, f"Not this, {SECRET}", "moderation_blocked")
    service.reply_with(DESCRIBED, DESCRIBED, refused, IMAGE)
    code, out, err = generated()
    assert (code, err) == (0, "")
    assert "5 drawn, 1 refused, 0 left" in out
    lines, everything = contents(tmp_path)
    assert [line["kind"] for line in lines] == ["description"] * 2 + ["refusal"] + ["image"] * 5
    assert lines[2]["refused"] == "Not this, (key)"
    assert sum(line.get("money") or 0 for line in lines) == 2 * 0.25 + 5 * 0.5
    assert {body["prompt"] for body in service.bodies[2:]} == {NINE[0], NINE[3], NINE[6]}
    assert SECRET.encode() not in everything
    assert SECRET not in out + err


def test_a_service_that_goes_down_ends_it_with_all_images_kept_and_the_same_command_goes_on(
    generated, service, tmp_path
):
    service.reply_with(DESCRIBED, DESCRIBED, IMAGE, IMAGE, failure(503, "overloaded"))
    code, _, err = generated()
    assert code != 0
    assert "503" in err
    assert "overloaded" in err
    assert [line["kind"] for line in contents(tmp_path)[0]].count("image") == 2
    service.reply_with(IMAGE)
    before = len(service.requests)
    code, out, _ = generated()
    assert code == 0
    assert "4 drawn, 0 left" in out
    assert len(service.requests) == before + 4


def test_a_money_budget_needs_a_price(generated, service):
    code, _, err = generated("generator.image_price=null", "budget.money=1")
    assert code != 0
    assert "generator.image_price" in err
    assert not service.requests


def test_a_server_of_one_s_own_writes_and_draws_without_a_key_or_a_price(generated, service, tmp_path, monkeypatch):
    """As docs/generate.md types it."""
    monkeypatch.delenv("OPENAI_API_KEY")
    service.reply_with(DESCRIBED, DESCRIBED, IMAGE)
    code, out, err = generated(
        "generator.image_price=0", "writer.call_price=0", "+generator.options.response_format=b64_json"
    )
    assert (code, err) == (0, "")
    assert "6 drawn, 0 left; 0.00" in out
    assert {body.get("response_format") for body in service.bodies[2:]} == {"b64_json"}
    assert b"Bearer" not in contents(tmp_path)[1]
