"""Images by a model behind OpenAI's API: GPT Image, DALL-E, or a server that speaks the same language."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from fca.generators import Drawn, Request
from fca.generators.openai_client import Service, check_price
from fca.nouns import FcaError


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
