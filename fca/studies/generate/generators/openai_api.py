"""Test images, and descriptions of them, from a service that speaks OpenAI's API.

OpenAI itself (GPT Image, GPT) or a server of your own. How any service is called stands first, then `generator=openai`,
then `writer=openai`. The key is OPENAI_API_KEY of the environment: it is stored nowhere and stays out of messages; a
server on this machine needs none.
Every failure is Refused, Unavailable or FcaError.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urlsplit

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from fca.studies.generate.protocols import Drawn, Refused, Unavailable, Wanted, missing_package
from fca.types import FcaError
from fca.validation import Allowed

if TYPE_CHECKING:
    import openai

KEY = "OPENAI_API_KEY"
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")  # they need no key
REFUSALS = ("content_policy_violation", "moderation_blocked", "content_filter")  # OpenAI's codes, and Azure's
TEMPORARY = (408, 409, 429)  # timeout, conflict, rate limit; and 500 and above
MAX_MESSAGE_LENGTH = 300  # characters of a service's own message


@dataclass(frozen=True, kw_only=True)
class Service:
    """Where the service is and how patiently requests are repeated.

    base_url:  of the service; None = OPENAI_BASE_URL of the environment, or else OpenAI's own.
    retries:   how often a request that failed for a time is repeated: after 0.5, 1, 2, 4, 8, 8, ... seconds, or after
               the time that the service gives in Retry-After, up to two minutes.
    timeout_s: seconds to wait for a response.
    """

    base_url: str | None = None
    retries: Annotated[int, Allowed(0)] = 6
    timeout_s: Annotated[float, Allowed(above=0)] = 180.0

    def ask(self, method: str, options: Mapping[str, Any], **request: Any) -> Any:
        """The response of the service to a request.

        method:  a method of the official client, such as images.generate; it gets the fields of `request`.
        options: fields of the request that the client does not know.
        request: the fields that it knows, among them `model`.

        Raises Refused for a request that violates the service's policy, Unavailable if it still fails after all
        retries, and FcaError if it can never succeed: no key, no such model, a request that it does not understand.
        """
        try:
            import openai
        except ImportError as error:
            raise missing_package("openai") from error
        failure: Exception
        try:
            client = _client(self.base_url, self.retries, self.timeout_s, self._key())
            return attrgetter(method)(client)(**request, extra_body=options)
        except openai.APIConnectionError as error:  # timeouts are of its kind
            reason = _one_line(error.__cause__ or error) or "timeout"
            failure = Unavailable(f"{self.host} does not answer, asked {self.retries + 1} times: {reason}")
        except openai.APIStatusError as error:
            failure = self._failure(request["model"], error)
        except (openai.APIResponseValidationError, ValueError):  # a response that is no JSON
            failure = self.misunderstood("an answer that is no JSON")
        # Raised outside of `except`, so that logs do not show the client's error, whose text may hold the key.
        raise failure

    def misunderstood(self, response: str) -> FcaError:
        """The error for a response that OpenAI's API would not give."""
        allowed = f"a service that speaks OpenAI's API: it gave {response}"
        return FcaError("base_url", self.host, allowed, "correct base_url or OPENAI_BASE_URL")

    @property
    def host(self) -> str:
        """The name of the service in messages, without the password that a URL may hold."""
        url = self._url()
        if not url:
            return "OpenAI"
        return urlsplit(url).netloc.rpartition("@")[2] or url

    def _url(self) -> str | None:
        """The address of the service; None: OpenAI's own."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL")

    def _key(self) -> str:
        """The key of the environment, or any word for a local service. Raises FcaError where a key is missing."""
        key = os.environ.get(KEY)
        host = urlsplit(self._url() or "").hostname or ""
        if not key and host not in LOCAL_HOSTS:
            step = f"export {KEY}=...; a server of your own that needs none takes any word"
            raise FcaError(KEY, "not set", "your key of the service, in the environment and nowhere else", step)
        return key or "none"

    def _failure(self, model: str, error: openai.APIStatusError) -> Exception:
        """The exception to raise for a response with an error status.

        It is Refused if the request violates the service's policy, Unavailable if the same request may succeed later,
        and FcaError if it never can.

        model: the name of the model in the request.
        """
        body: Any = error.body  # usually OpenAI's dictionary with a message; a proxy may send anything
        message_of_body = body.get("message") if isinstance(body, Mapping) else None
        message = _one_line(message_of_body or error.message)[:MAX_MESSAGE_LENGTH]
        status = error.status_code
        if error.code in REFUSALS:
            return Refused(message)
        if status in TEMPORARY or status >= 500:
            wait = error.response.headers.get("retry-after")
            times = f"after being asked {self.retries + 1} times"
            if wait:
                times += f"; it asks to wait {wait} s"
            return Unavailable(f"{self.host} answers {status} {times}: {message}")
        if status == 401:  # the service's own message is left out: it may hold a part of the key
            return FcaError(KEY, "(secret)", f"a key that {self.host} accepts (it answers 401)", f"set {KEY}")
        # any other status: the service does not accept the request itself
        return FcaError("model", model, f"what {self.host} takes ({status}: {message})", "correct the model or options")


@cache
def _client(url: str | None, retries: int, timeout_s: float, key: str) -> openai.OpenAI:
    """The official client, one for each service, so that its connection is kept open."""
    import openai

    return openai.OpenAI(api_key=key, base_url=url, max_retries=retries, timeout=openai.Timeout(timeout_s))


def _one_line(message: object) -> str:
    """A service's own words without the key, which it may repeat."""
    text = " ".join(str(message).split())
    key = os.environ.get(KEY)
    return text.replace(key, "(key)") if key else text


def check_price(key: str, price: float | None) -> float:
    """The price, where it was given. Raises FcaError naming its key where it was not, or is negative.

    >>> check_price("generator.image_price", 0.04)
    0.04
    """
    if price is None or price < 0:
        allowed = "the money that the service takes for one, 0 or more"
        raise FcaError(key, price, allowed, f"look it up, set {key}=...")
    return price


@dataclass(frozen=True)
class OpenAIImages(Service):
    """`generator=openai`: images.generate.

    model, size: as the service calls them.
    options:     more of the request's own fields, e.g. {quality: low}, sent as they are.
    image_price: money an image, for budget.money and the cost of a dry run; null = not known.
    base_url, retries, timeout_s: see Service.

    The service takes no seed: the same request gives another image each time.
    """

    model: str
    size: str
    options: dict[str, Any] = field(default_factory=dict)
    image_price: Annotated[float | None, Allowed(0)] = None

    prompted: ClassVar[bool] = True
    parallel: ClassVar[bool] = False

    def label(self) -> str:
        return "openai"

    def version(self) -> str:
        """Model, size and options.

        >>> OpenAIImages("gpt-image-1", "1024x1024", {"quality": "low"}).version()
        'gpt-image-1, size 1024x1024, quality low'
        """
        options = "".join(f", {key} {value}" for key, value in sorted(self.options.items()))
        return f"{self.model}, size {self.size}{options}"

    def price(self) -> float:
        return check_price("generator.image_price", self.image_price)

    def draw(self, request: Wanted) -> Drawn:
        """The image in the size in which the service returns it, and the service's facts about it.

        Raises Refused if the request violates the service's policy, Unavailable after all retries, FcaError for a
        missing key or prompt, for a model, size or option that the service does not know, and for a response without a
        usable image.
        """
        fields = {"model": self.model, "prompt": request.words(), "n": 1, "size": self.size}
        response = self.ask("images.generate", self.options, **fields)
        images = getattr(response, "data", None)  # absent in a response of something else than OpenAI's API
        if not images:
            raise self.misunderstood("no image")
        if not images[0].b64_json:
            allowed = f"options that bring the image itself; {self.model} sends an address"
            raise FcaError("generator.options", self.options, allowed, "add response_format: b64_json")
        try:
            pixels = pixels_of(base64.b64decode(images[0].b64_json))
        except (OSError, ValueError) as error:  # binascii's and Pillow's
            raise self.misunderstood("an image that cannot be decoded") from error

        # Facts that can only be learnt now: which model drew the image, when, and from which words.
        facts = {
            "model": self.model,
            "created": response.created and datetime.fromtimestamp(response.created, UTC).isoformat(),
            "revised_prompt": images[0].revised_prompt,
            "usage": response.usage and response.usage.model_dump(mode="json"),
        }
        given_facts = {name: value for name, value in facts.items() if value}
        return Drawn(pixels, visible=None, full=None, facts=given_facts)


def pixels_of(content: bytes) -> UInt8[np.ndarray, "height width 3"]:
    """RGB pixels of an encoded image; what is transparent shows white."""
    with Image.open(io.BytesIO(content), formats=["PNG", "JPEG", "WEBP"]) as opened:
        image = opened.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB"))


NUMBERS = tuple(str(number) for number in range(1, 10))
TEXTS = {number: {"type": "string"} for number in NUMBERS}
SCHEMA = {"type": "object", "properties": TEXTS, "required": list(NUMBERS), "additionalProperties": False}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "descriptions", "strict": True, "schema": SCHEMA}}
TASK = """\
You write prompts for a text-to-image model. Its images will test an image classifier that must recognise: {name}.
Write nine prompts in which the {name} becomes harder and harder to recognise, by this attribute alone: {attribute}.
1, 2 and 3 are easy, 4, 5 and 6 are medium, 7, 8 and 9 are hard; each is harder than the one before it. All else stays
easy: one {name}, well visible in an ordinary scene that suits it, and a person can still tell what it is even in 9.
Each prompt is one or two sentences, names the {name}, and says exactly what is to be seen. Answer as JSON with the keys
"1" to "9"."""
MAX_DESCRIPTION_LENGTH = 1000  # characters: what image models take


@dataclass(frozen=True)
class OpenAIChat(Service):
    """`writer=openai`: chat.completions.

    model:      as the service calls it; it must know structured outputs (json_schema).
    attributes: attribute -> what changes from easy to hard, in words; for others the request has only their name.
    options:    more of the request's own fields, e.g. {temperature: 1}, sent as they are.
    call_price: money a call, for budget.money and the cost of a dry run; null = not known.
    base_url, retries, timeout_s: see Service.
    """

    model: str
    attributes: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    call_price: Annotated[float | None, Allowed(0)] = None
    timeout_s: Annotated[float, Allowed(above=0)] = field(default=120.0, kw_only=True)

    def label(self) -> str:
        """The model, since it decides the words."""
        return self.model

    def price(self) -> float:
        return check_price("writer.call_price", self.call_price)

    def describe(self, name: str, attribute: str) -> list[str]:
        """Nine descriptions of an image of a class, easy to hard by the attribute.

        The setting `attributes` may have words for what an attribute changes, which the model then gets, too. If the
        reply cannot be used, the model gets one more chance, with a message about what is wrong.

        name: what a person calls the class.

        Raises Refused if the model declines, Unavailable after all retries, FcaError for a missing key, a model that
        the service does not know, and two replies that cannot be used.
        """
        what_changes = self.attributes.get(attribute)
        attribute_in_words = f"{attribute} ({what_changes})" if what_changes else attribute
        messages = [{"role": "user", "content": TASK.format(name=name, attribute=attribute_in_words)}]
        for _ in range(2):  # the second conversation includes the first reply, and what is wrong with it
            reply = self._reply(messages)
            problem = fault(reply)
            if problem is None:
                description_by_number = json.loads(reply)
                return [description_by_number[number].strip() for number in NUMBERS]
            messages.append({"role": "assistant", "content": reply})
            messages.append({"role": "user", "content": f"{problem} Try again."})
        allowed = f"nine different descriptions as JSON; {self.model} was asked twice: {problem}"
        raise FcaError(f"descriptions of {name}, {attribute}", reply[:200], allowed, "start again, or set writer.model")

    def _reply(self, messages: list[dict[str, str]]) -> str:
        """The text of the model's reply to a conversation; empty if it replies without text.

        Raises Refused if the model declines, and what `ask` raises.
        """
        request = {"model": self.model, "messages": messages, "response_format": FORMAT}
        response = self.ask("chat.completions.create", self.options, **request)
        choices = getattr(response, "choices", None)
        if not choices:
            raise self.misunderstood("no message")
        message = choices[0].message
        if message.refusal or choices[0].finish_reason == "content_filter":
            raise Refused(message.refusal or "content filter")
        return message.content or ""


def fault(reply: str) -> str | None:
    """What is wrong with a model's reply, in words that are sent back to it; None if nothing is.

    A correct reply is a JSON object with nine different descriptions, whose keys are "1" to "9".

    >>> fault('{"1": "a car"}')
    'The keys are not "1" to "9".'
    """
    try:
        nine = json.loads(reply)
    except ValueError:
        return "That is not JSON."
    if not isinstance(nine, Mapping) or set(nine) != set(NUMBERS):
        return 'The keys are not "1" to "9".'
    texts = [text.strip() if isinstance(text, str) else "" for text in nine.values()]
    if not all(texts) or max(map(len, texts)) > MAX_DESCRIPTION_LENGTH:
        return f"Each description must be text of 1 to {MAX_DESCRIPTION_LENGTH} characters."
    if any(brace in text for text in texts for brace in "{}"):
        return "Braces are not allowed."  # in a plan's texts they mark places to fill in
    if len(set(texts)) < len(texts):
        return "Two descriptions are the same."
    return None
