"""`segmenter=...`: a model finds the object in an image, for generators that make no masks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from fca.studies.generate.protocols import missing_package
from fca.types import FcaError
from fca.validation import Allowed


@runtime_checkable
class Segmenter(Protocol):
    """Finds the pixels of an object by its name."""

    def label(self) -> str: ...  # its name and settings in manifests

    def mask(self, image: UInt8[np.ndarray, "height width 3"], name: str) -> Bool[np.ndarray, "height width"]:
        """The pixels that show the object that a person calls `name`; none if it is not found."""


@dataclass(frozen=True)
class ClipSeg:
    """`segmenter=clipseg`: pixels whose probability by CLIPSeg for a text is at least the threshold.

    model: id at Hugging Face or a folder.    revision: of the id; null = its main branch.
    prompt: words with {name} for the class's name.    threshold: of the probability, sigmoid of its logit.
    """

    model: str
    revision: str | None
    prompt: str
    threshold: Annotated[float, Allowed(0, 1)]

    def check(self) -> None:
        """Raise FcaError for a prompt that does not name the class."""
        if "{name}" not in self.prompt:
            raise FcaError("segmenter.prompt", self.prompt, "words with {name}", "add {name} where the class is named")

    def label(self) -> str:
        return f"{self.model}@{self.revision or 'main'}, {self.prompt}, {self.threshold:g}"

    def mask(self, image: UInt8[np.ndarray, "height width 3"], name: str) -> Bool[np.ndarray, "height width"]:
        """The pixels that show the object `name` with a probability of at least `threshold`, as CLIPSeg finds."""
        import torch

        network, processor = _clipseg(self.model, self.revision)
        prompt = self.prompt.replace("{name}", name)
        inputs = processor(text=[prompt], images=[image], return_tensors="pt", padding=True).to(network.device)
        with torch.inference_mode():
            logits = network(**inputs).logits
        # one image: reshape drops the axis of the batch
        probabilities = logits.float().sigmoid().cpu().numpy().reshape(inputs["pixel_values"].shape[-2:])

        # the network's map of probabilities has the size of its own input, not of the image
        height, width = image.shape[:2]
        resized = Image.fromarray(probabilities).resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(resized) >= self.threshold


@lru_cache(maxsize=1)  # one network stays in memory for all images
def _clipseg(model: str, revision: str | None) -> tuple[Any, Any]:
    """A CLIPSeg network, on the GPU if there is one, and the processor that prepares its inputs.

    CLIPSeg segments what a text describes. Raises FcaError if the package transformers is missing, and if `model` is
    neither the folder nor the id of a CLIPSeg.
    """
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()  # transformers may import torchvision, which fails with a CPU build of torch otherwise
    import torch

    try:
        from transformers import CLIPSegForImageSegmentation, CLIPSegProcessor
    except ImportError as error:
        raise missing_package("transformers") from error
    try:
        processor = CLIPSegProcessor.from_pretrained(model, revision=revision or "main")
        network: Any = CLIPSegForImageSegmentation.from_pretrained(model, revision=revision or "main")
    except (OSError, ValueError, KeyError) as error:
        message = str(error).strip().partition("\n")[0]
        step = "correct segmenter.model, or connect once and try again"
        raise FcaError("segmenter.model", model, f"the folder or the id of a CLIPSeg ({message})", step) from error
    return network.eval().to("cuda" if torch.cuda.is_available() else "cpu"), processor
