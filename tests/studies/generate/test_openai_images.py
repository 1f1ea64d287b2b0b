"""The official client against a service on 127.0.0.1."""

import logging
import time
import traceback
from dataclasses import replace

import numpy as np
import pytest

from fca.studies.generate.generators.openai_api import OpenAIImages
from fca.studies.generate.protocols import Generator, Refused, Request, Unavailable
from fca.types import FcaError
from tests.studies.generate.conftest import SECRET, STALL, failure, image_reply, reply

REQUEST = Request("n02099601", "golden retriever", "occlusion", "hard", 7, 0, 5, "a dog behind a door")
PIXELS = np.arange(4 * 6 * 3).reshape(4, 6, 3)


def images(service, **more):
    return OpenAIImages(
        "an-image-model", "1024x1024", **{"base_url": service.url, "retries": 1, "timeout_s": 5.0, **more}
    )


def test_the_image_is_the_one_that_was_sent_and_the_request_the_one_that_was_meant(service):
    service.reply_with(image_reply(PIXELS, revised_prompt="a big dog"))
    made = images(service, options={"quality": "low", "of_tomorrow": 3})
    image, visible, full, facts = made.draw(REQUEST)
    assert np.array_equal(image, PIXELS)
    assert visible is full is None
    assert facts["revised_prompt"] == "a big dog"
    assert facts["created"].startswith("2025-10-09")
    path, headers, body = service.requests[0]
    assert path == "/v1/images/generations"
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert body == {
        "model": "an-image-model", "prompt": "a dog behind a door", "n": 1, "size": "1024x1024", "quality": "low",
        "of_tomorrow": 3,
    }  # fmt: skip
    assert isinstance(made, Generator)


def test_what_is_transparent_shows_white(service):
    service.reply_with(image_reply(np.dstack([PIXELS, np.zeros((4, 6))]), "RGBA"))
    assert (images(service).draw(REQUEST).image == 255).all()


@pytest.mark.parametrize("code", ["content_policy_violation", "moderation_blocked", "content_filter"])
def test_a_refusal_is_raised_as_refused_and_not_retried(service, code):
    service.reply_with(failure(400, "Your request was rejected.", code))
    with pytest.raises(Refused, match="Your request was rejected"):
        images(service).draw(REQUEST)
    assert len(service.requests) == 1


def test_a_rate_limit_is_waited_for_as_long_as_the_service_asks(service):
    service.reply_with(failure(429, "slow down", retry_after=1), image_reply(PIXELS))
    start = time.monotonic()
    assert np.array_equal(images(service).draw(REQUEST).image, PIXELS)
    assert 1 <= time.monotonic() - start < 3


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_service_that_stays_down_is_unavailable_after_all_retries(service, status):
    service.reply_with(failure(status, "overloaded", retry_after_ms=10))
    with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:\d+ answers {status} after being asked 3 times: overloaded"):
        images(service, retries=2).draw(REQUEST)
    assert len(service.requests) == 3


def test_a_wait_of_an_hour_is_reported_and_not_waited_for(service):
    service.reply_with(failure(429, "quota", retry_after=3600))
    with pytest.raises(Unavailable, match="it asks to wait 3600 s: quota"):
        images(service).draw(REQUEST)


def test_a_service_that_stalls_is_unavailable(service):
    service.reply_with(STALL)
    with pytest.raises(Unavailable, match="does not answer, asked 1 time"):
        images(service, timeout_s=0.3, retries=0).draw(REQUEST)


def test_nobody_there_is_unavailable(service):
    with pytest.raises(Unavailable, match=r"^127\.0\.0\.1:9 does not answer") as raised:
        images(service, base_url="http://user:word@127.0.0.1:9/v1", retries=0).draw(REQUEST)
    assert "word" not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "expected"), [(401, "OPENAI_API_KEY = .*a key that"), (403, "403: Bad key"), (404, "404: Bad key")]
)
def test_the_key_is_in_no_error_log_or_name_even_if_the_service_repeats_it(service, status, expected, caplog):
    caplog.set_level(logging.DEBUG)
    service.reply_with(failure(status, f"Bad key {SECRET}"))
    made = images(service)
    with pytest.raises(FcaError, match=expected) as raised:
        made.draw(REQUEST)
    shown = "".join(traceback.format_exception(raised.value)) + repr(made) + made.version() + caplog.text
    assert SECRET not in shown
    assert SECRET[:8] not in shown


def test_without_a_key_nothing_is_requested(service, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    for elsewhere in (None, "https://images.example.org/v1", "http://127.evil.example.org/v1"):
        with pytest.raises(FcaError, match="OPENAI_API_KEY = not set"):
            images(service, base_url=elsewhere).draw(REQUEST)
    assert not service.requests


def test_a_server_on_this_machine_needs_no_key(service, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    service.reply_with(image_reply(PIXELS), failure(400, "none of these sizes"))
    assert np.array_equal(images(service, options={"response_format": "b64_json"}).draw(REQUEST).image, PIXELS)
    _, headers, body = service.requests[0]
    assert (headers["authorization"], body["response_format"]) == ("Bearer none", "b64_json")
    with pytest.raises(FcaError, match="none of these sizes"):
        images(service).draw(REQUEST)
    monkeypatch.setenv("OPENAI_BASE_URL", service.url.replace("127.0.0.1", "localhost"))
    service.reply_with(image_reply(PIXELS))
    assert np.array_equal(images(service, base_url=None).draw(REQUEST).image, PIXELS)


def test_a_request_that_the_service_rejects_is_an_error_with_its_reason(service):
    service.reply_with(failure(400, "Invalid size", "invalid_value"))
    with pytest.raises(FcaError, match=r"model = an-image-model; allowed: what 127.* takes \(400: Invalid size\)"):
        images(service).draw(REQUEST)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (reply(200, b"<html>hello</html>", content_type="text/html"), "no image"),
        (reply(200, b"{broken"), "no JSON"),
        (reply(200, {"created": 1, "data": []}), "no image"),
        (reply(200, {"created": 1, "data": [{"url": "http://elsewhere/1.png"}]}), "sends an address"),
        (reply(200, {"created": 1, "data": [{"b64_json": "Tm8gaW1hZ2U="}]}), "an image that cannot be decoded"),
        (reply(200, {"created": 1, "data": [{"b64_json": "!"}]}), "an image that cannot be decoded"),
    ],
)
def test_a_reply_without_a_usable_image_is_an_error_that_names_what_is_missing(service, given, expected):
    service.reply_with(given)
    with pytest.raises(FcaError, match=expected):
        images(service).draw(REQUEST)


def test_the_address_comes_from_the_environment_unless_it_is_given(service, monkeypatch):
    service.reply_with(image_reply(PIXELS))
    monkeypatch.setenv("OPENAI_BASE_URL", service.url)
    images(service, base_url=None).draw(REQUEST)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    images(service).draw(REQUEST)
    assert len(service.requests) == 2


def test_a_missing_price_is_an_error_that_names_its_key(service):
    assert images(service, image_price=0.04).price() == 0.04
    for price in (None, -1.0):
        with pytest.raises(FcaError, match=rf"generator\.image_price = {price}"):
            images(service, image_price=price).price()


def test_no_prompt_is_an_error(service):
    with pytest.raises(FcaError, match="prompt of n02099601/occlusion/hard"):
        images(service).draw(replace(REQUEST, prompt=None))
