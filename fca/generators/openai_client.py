"""Asking a service that speaks OpenAI's API: the key stays secret; failures are Refused, Unavailable or FcaError."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from fca.generators import Refused, Unavailable
from fca.nouns import FcaError

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
