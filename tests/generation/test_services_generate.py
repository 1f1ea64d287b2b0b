"""`fca generate` with a service on 127.0.0.1: what is kept, what it cost, and that the key is nowhere."""

import json

import numpy as np
import pytest

from fca.cli import generate
from tests.generation.conftest import SECRET, drawn, failure, said
from tests.generation.test_openai_chat import NINE, as_json

PIXELS = np.arange(8 * 8 * 3).reshape(8, 8, 3)
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
    """Run the door with both plugs at the service; returns (exit code, output, errors) and what the folder holds."""
    (tmp_path / "two.yaml").write_text(PLAN)

    def call(*words):
        plugs = [
            f"{plug}.{key}" for plug in ("generator", "writer") for key in (f"base_url={service.url}", "retries=0")
        ]
        prices = ["generator.image_price=0.5", "writer.call_price=0.25"]
        command = ["generator=openai", "writer=openai", "plan.file=two.yaml", *plugs, *prices, *words]
        return fca(*command, door=generate)

    return call


def held(tmp_path):
    """The journal's lines, and all bytes of all files."""
    root = tmp_path / "outputs" / "generated" / "two"
    lines = [json.loads(line) for line in (root / "journal.jsonl").read_text().splitlines()]
    return lines, b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_words_images_and_a_refusal_are_kept_and_paid_for_and_the_key_is_nowhere(generated, service, tmp_path):
    refused = failure(400, f"Not this, {SECRET}", "moderation_blocked")
    service.says(said(as_json(NINE)), said(as_json(NINE)), refused, drawn(PIXELS))
    code, out, err = generated()
    assert (code, err) == (0, "")
    assert "5 drawn, 1 refused, 0 left" in out
    lines, everything = held(tmp_path)
    assert [line["kind"] for line in lines] == ["description"] * 2 + ["refusal"] + ["image"] * 5
    assert lines[2]["refused"] == "Not this, (key)"
    assert sum(line.get("money") or 0 for line in lines) == 2 * 0.25 + 5 * 0.5
    assert {body["prompt"] for body in service.bodies[2:]} == {NINE[0], NINE[3], NINE[6]}
    assert SECRET.encode() not in everything
    assert SECRET not in out + err


def test_a_service_that_goes_down_ends_it_with_all_images_kept_and_the_same_command_goes_on(
    generated, service, tmp_path
):
    service.says(said(as_json(NINE)), said(as_json(NINE)), drawn(PIXELS), drawn(PIXELS), failure(503, "overloaded"))
    code, _, err = generated()
    assert code != 0
    assert "503" in err
    assert "overloaded" in err
    assert [line["kind"] for line in held(tmp_path)[0]].count("image") == 2
    service.says(drawn(PIXELS))
    asked = len(service.asked)
    code, out, _ = generated()
    assert code == 0
    assert "4 drawn, 0 left" in out
    assert len(service.asked) == asked + 4


def test_a_money_budget_needs_a_price(generated, service):
    code, _, err = generated("generator.image_price=null", "budget.money=1")
    assert code != 0
    assert "generator.image_price" in err
    assert not service.asked
