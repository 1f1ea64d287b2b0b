"""Asking a service that speaks OpenAI's API: the key stays secret; failures are Refused, Unavailable or FcaError."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from fca.generation import Drawn, Refused, Request, Unavailable
from fca.types import FcaError

if TYPE_CHECKING:
    import openai

Answer = TypeVar("Answer")

KEY = "OPENAI_API_KEY"
REFUSALS = ("content_policy_violation", "moderation_blocked", "content_filter")  # OpenAI's codes, and Azure's
TEMPORARY = (408, 409, 429)  # timeout, conflict, rate limit; and 500 and above
SHOWN = 300  # characters of a service's own message


@dataclass(frozen=True)
class Service:
    """Where the service is and how patiently it is asked.

    url:       of the service; None = OPENAI_BASE_URL of the environment, or else OpenAI's own.
    retries:   how often a request that failed for a time is repeated: after 0.5, 1, 2, 4, 8, 8, ... seconds, or after
               what the service asks for in Retry-After, up to two minutes.
    timeout_s: seconds to wait for an answer.
    """

    url: str | None
    retries: int
    timeout_s: float

    def ask(self, model: str, question: Callable[[openai.OpenAI], Answer]) -> Answer:
        """The answer to a question about a model.

        Raises Refused where the service will not answer this one, Unavailable where it is still down after all
        retries, FcaError where it never will: no key, no such model, a request that it does not understand.
        """
        try:
            import openai
        except ImportError as error:
            raise FcaError("package openai", "missing", "installed", "pip install 'fca[generate]'") from error
        failure: Exception
        try:
            return question(_client(self, _key()))
        except openai.APIConnectionError as error:  # timeouts are of its kind
            why = _without_key(" ".join(str(error.__cause__ or error).split()))
            failure = Unavailable(f"{self.named()} does not answer, asked {self._times()}: {why or 'timeout'}")
        except openai.APIStatusError as error:
            failure = self._told(model, error)
        except (openai.APIResponseValidationError, ValueError):  # an answer that is no JSON
            failure = self.misunderstood("an answer that is no JSON")
        raise failure  # not from the service's error, whose text may hold the key and ends in logs

    def misunderstood(self, answered: str) -> FcaError:
        """What to raise for an answer that OpenAI's would not give."""
        allowed = f"a service that speaks OpenAI's API: it gave {answered}"
        return FcaError("base_url", self.named(), allowed, "correct base_url or OPENAI_BASE_URL")

    def named(self) -> str:
        """Its host: a URL may hold a password."""
        url = self.url or os.environ.get("OPENAI_BASE_URL")
        return urlsplit(url).netloc.rpartition("@")[2] or url if url else "OpenAI"

    def _told(self, model: str, error: openai.APIStatusError) -> Exception:
        """What an answer with an error status means."""
        status, said = error.status_code, _without_key(_message(error))[:SHOWN]
        if error.code in REFUSALS:
            return Refused(said)
        if status in TEMPORARY or status >= 500:
            wait = error.response.headers.get("retry-after")
            later = f"; it asks to wait {wait} s" if wait else ""
            return Unavailable(f"{self.named()} answers {status} after being asked {self._times()}{later}: {said}")
        if status == 401:  # its words may hold a part of the key
            return FcaError(KEY, "(secret)", f"a key that {self.named()} accepts (it answers 401)", f"set {KEY}")
        return FcaError("model", model, f"what {self.named()} takes ({status}: {said})", "correct the model or options")

    def _times(self) -> str:
        return f"{self.retries + 1} times"


def check_price(key: str, price: float | None) -> float:
    """The price, where it was given. Raises FcaError naming its key where it was not, or is negative.

    >>> check_price("generator.image_price", 0.04)
    0.04
    """
    if price is None or price < 0:
        allowed = "the money that the service takes for one, 0 or more"
        raise FcaError(key, price, allowed, f"look it up, set {key}=...")
    return price


@cache
def _client(service: Service, key: str) -> openai.OpenAI:
    import openai

    return openai.OpenAI(
        api_key=key, base_url=service.url, max_retries=service.retries, timeout=openai.Timeout(service.timeout_s)
    )


def _key() -> str:
    key = os.environ.get(KEY)
    if not key:
        step = f"export {KEY}=...; a server of your own that needs none takes any word"
        raise FcaError(KEY, "not set", "your key of the service, in the environment and nowhere else", step)
    return key


def _without_key(text: str) -> str:
    """A service may repeat the key in what it says."""
    return text.replace(_key(), "(key)")


def _message(error: openai.APIStatusError) -> str:
    """The service's own words, on one line."""
    body: Any = error.body
    said = body.get("message") if isinstance(body, Mapping) else None
    return " ".join(str(said or error.message).split())


# Descriptions of images by a language model behind OpenAI's API.


NUMBERS = tuple(str(number) for number in range(1, 10))
SCHEMA = {
    "type": "object",
    "properties": {number: {"type": "string"} for number in NUMBERS},
    "required": list(NUMBERS),
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "descriptions", "strict": True, "schema": SCHEMA}}
TASK = """\
You write prompts for a text-to-image model. Its images will test an image classifier that must recognise: {name}.
Write nine prompts in which the {name} becomes harder and harder to recognise, by this attribute alone: {attribute}.
1, 2 and 3 are easy, 4, 5 and 6 are medium, 7, 8 and 9 are hard; each is harder than the one before it. All else stays
easy: one {name}, well visible in an ordinary scene that suits it, and a person can still tell what it is even in 9.
Each prompt is one or two sentences, names the {name}, and says exactly what is to be seen. Answer as JSON with the keys
"1" to "9"."""
LONGEST = 1000  # characters: what image models take


@dataclass(frozen=True)
class OpenAIChat:
    """`writer=openai`: chat.completions. The key is OPENAI_API_KEY of the environment, and is stored nowhere.

    model:      as the service calls it; it must know structured outputs (json_schema).
    attributes: attribute -> what changes from easy to hard, in words; one that is not here is asked for by its name.
    options:    more of the request's own fields, e.g. {temperature: 1}, sent as they are.
    call_price: money a call, for budget.money and the cost of a dry run; null = not known.
    base_url, retries, timeout_s: see Service.
    """

    model: str
    attributes: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    call_price: float | None = None
    base_url: str | None = None
    retries: int = 6
    timeout_s: float = 120.0

    def label(self) -> str:
        """The model, since it decides the words."""
        return self.model

    def price(self) -> float:
        return check_price("writer.call_price", self.call_price)

    def describe(self, name: str, attribute: str) -> list[str]:
        """Nine descriptions of an image of that class, easy to hard by the attribute; asked again once if unusable.

        Raises Refused where the model will not write them, Unavailable after all retries, FcaError for a missing key, a
        model that the service does not know, and descriptions that are unusable twice.
        """
        told = self.attributes.get(attribute)
        task = TASK.format(name=name, attribute=f"{attribute} ({told})" if told else attribute)
        messages: list[Any] = [{"role": "user", "content": task}]
        for _ in range(2):
            said = self._said(messages)
            wrong = fault(said)
            if wrong is None:
                return [json.loads(said)[number].strip() for number in NUMBERS]
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"{wrong} Try again."}]
        allowed = f"nine different descriptions as JSON; {self.model} was asked twice: {wrong}"
        raise FcaError(f"descriptions of {name}, {attribute}", said[:200], allowed, "start again, or set writer.model")

    def _said(self, messages: list[Any]) -> str:
        service = Service(self.base_url, self.retries, self.timeout_s)
        answer: Any = service.ask(
            self.model,
            lambda client: client.chat.completions.create(
                model=self.model,
                messages=messages,
                response_format=FORMAT,
                extra_body=self.options,
            ),
        )
        choices = getattr(answer, "choices", None)
        if not choices:
            raise service.misunderstood("no message")
        message = choices[0].message
        if message.refusal or choices[0].finish_reason == "content_filter":
            raise Refused(message.refusal or "content filter")
        return message.content or ""


def fault(said: str) -> str | None:
    """What is wrong with an answer, in words for who gave it; None where it is nine descriptions.

    >>> fault('{"1": "a car"}')
    'The keys are not "1" to "9".'
    """
    try:
        nine = json.loads(said)
    except ValueError:
        return "That is not JSON."
    if not isinstance(nine, Mapping) or set(nine) != set(NUMBERS):
        return 'The keys are not "1" to "9".'
    texts = [text.strip() if isinstance(text, str) else "" for text in nine.values()]
    if not all(texts) or max(map(len, texts)) > LONGEST:
        return f"Each description must be text of 1 to {LONGEST} characters."
    if any(brace in text for text in texts for brace in "{}"):
        return "Braces are not allowed."  # a plan's own templates have them
    if len(set(texts)) < len(texts):
        return "Two descriptions are the same."
    return None


# Images by a model behind OpenAI's API: GPT Image, DALL-E, or a server that speaks the same language.


@dataclass(frozen=True)
class OpenAIImages:
    """`generator=openai`: images.generate. The key is OPENAI_API_KEY of the environment, and is stored nowhere.

    model, size: as the service calls them.
    options:     more of the request's own fields, e.g. {quality: low}, sent as they are.
    image_price: money an image, for budget.money and the cost of a dry run; null = not known.
    base_url, retries, timeout_s: see Service.

    The service takes no seed: the same request gives another image each time.
    """

    model: str
    size: str
    options: dict[str, Any] = field(default_factory=dict)
    image_price: float | None = None
    base_url: str | None = None
    retries: int = 6
    timeout_s: float = 180.0

    prompted: ClassVar[bool] = True
    parallel: ClassVar[bool] = False

    def label(self) -> str:
        return "openai"

    def version(self) -> str:
        """Model, size and options.

        >>> OpenAIImages("gpt-image-1", "1024x1024", {"quality": "low"}).version()
        'gpt-image-1, size 1024x1024, quality low'
        """
        more = [f", {key} {value}" for key, value in sorted(self.options.items())]
        return f"{self.model}, size {self.size}{''.join(more)}"

    def price(self) -> float:
        return check_price("generator.image_price", self.image_price)

    def draw(self, request: Request) -> Drawn:
        """The image at the size that the service gives it, and what the service says of it.

        Raises Refused by its content policy, Unavailable after all retries, FcaError for a missing key or prompt, and
        for a model, size or option that the service does not know.
        """
        if request.prompt is None:
            raise FcaError(f"prompt of {request.key}", "none", "words", "write descriptions in the plan")
        prompt, service = request.prompt, Service(self.base_url, self.retries, self.timeout_s)
        answer: Any = service.ask(
            self.model,
            lambda client: client.images.generate(
                model=self.model,
                prompt=prompt,
                n=1,
                size=self.size,
                extra_body=self.options,
            ),
        )
        data = getattr(answer, "data", None)
        if not data:
            raise service.misunderstood("no image")
        if not data[0].b64_json:
            allowed = f"options that bring the image itself; {self.model} sends an address"
            raise FcaError("generator.options", self.options, allowed, "add response_format: b64_json")
        try:
            image = pixels_of(base64.b64decode(data[0].b64_json))
        except (OSError, ValueError) as error:  # binascii's and Pillow's
            raise service.misunderstood("an image that cannot be decoded") from error
        return Drawn(image, None, None, _facts(self.model, answer, data[0]))


def pixels_of(content: bytes) -> UInt8[np.ndarray, "height width 3"]:
    """RGB pixels of an encoded image; what is transparent shows white."""
    with Image.open(io.BytesIO(content)) as opened:
        image = opened.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB"))


def _facts(model: str, answer: Any, image: Any) -> Mapping[str, Any]:
    """What cannot be asked again: when, by which model, from which words."""
    created = answer.created and datetime.fromtimestamp(answer.created, UTC).isoformat()
    facts = {
        "model": model,
        "created": created,
        "revised_prompt": image.revised_prompt,
        "usage": answer.usage and answer.usage.model_dump(mode="json"),
    }
    return {key: value for key, value in facts.items() if value}
