"""Descriptions of images by a language model behind OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fca.generators import Refused
from fca.generators.openai_client import Service, check_price
from fca.nouns import FcaError

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
