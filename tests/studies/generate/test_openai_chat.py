"""Nine descriptions, from a service on 127.0.0.1."""

import json

import pytest

from fca.studies.generate.generators.openai_api import OpenAIChat
from fca.studies.generate.protocols import Refused, Unavailable, Writer
from fca.types import FcaError
from tests.studies.generate.conftest import chat_reply, failure
from tests.studies.generate.support.chat import NINE, as_json


def chat(service, **more):
    return OpenAIChat("a-chat-model", base_url=service.url, retries=1, timeout_s=5.0, **more)


def test_the_descriptions_come_in_order_and_the_prompt_describes_what_is_wanted(service):
    service.reply_with(chat_reply(json.dumps(dict(reversed(json.loads(as_json(NINE)).items())))))
    writer = chat(service, attributes={"view": "side it is seen from"}, options={"temperature": 1})
    assert writer.describe("car", "view") == NINE
    assert isinstance(writer, Writer)
    path, _, body = service.requests[0]
    assert path == "/v1/chat/completions"
    assert body["model"] == "a-chat-model"
    assert body["temperature"] == 1
    assert "must recognise: car." in body["messages"][0]["content"]
    assert "view (side it is seen from)" in body["messages"][0]["content"]
    schema = body["response_format"]["json_schema"]
    assert schema["strict"]
    assert schema["schema"]["required"] == list("123456789")


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("Sure! Here are nine", "That is not JSON"),
        ("[1, 2]", "The keys are not"),
        (as_json(NINE[:8]), "The keys are not"),
        (as_json([*NINE[:8], " "]), "must be text"),
        (as_json([*NINE[:8], 9]), "must be text"),
        (as_json([*NINE[:8], "a" * 1001]), "must be text"),
        (as_json([*NINE[:8], "A {color} car."]), "Braces"),
        (as_json([*NINE[:8], NINE[0]]), "Two descriptions are the same"),
        ("", "That is not JSON"),
    ],
)
def test_an_unusable_reply_is_requested_once_more_with_its_problem(service, bad, problem):
    service.reply_with(chat_reply(bad), chat_reply(as_json(NINE)))
    assert chat(service).describe("car", "view") == NINE
    assert problem in service.bodies[1]["messages"][-1]["content"]


def test_a_reply_that_is_unusable_twice_is_an_error(service):
    service.reply_with(chat_reply("no"))
    with pytest.raises(FcaError, match=r"descriptions of car, view = no; .*asked twice: That is not JSON"):
        chat(service).describe("car", "view")
    assert len(service.requests) == 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (chat_reply(None, refusal="I cannot help with that."), "I cannot help"),
        (chat_reply("", finish_reason="content_filter"), "content filter"),
        (failure(400, "filtered", "content_filter"), "filtered"),
    ],
)
def test_a_refusal_is_raised_as_refused(service, given, expected):
    service.reply_with(given)
    with pytest.raises(Refused, match=expected):
        chat(service).describe("car", "view")


def test_a_service_that_is_down_is_unavailable(service):
    service.reply_with(failure(500, retry_after_ms=10))
    with pytest.raises(Unavailable, match="500 after being asked 2 times"):
        chat(service).describe("car", "view")


def test_a_missing_price_is_an_error_that_names_its_key(service):
    assert chat(service, call_price=0.001).price() == 0.001
    with pytest.raises(FcaError, match=r"writer\.call_price = None"):
        chat(service).price()
