"""Images by any text-to-image pipeline of diffusers: Stable Diffusion and its kin, on this machine."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from fca.allowed import Allowed
from fca.generation import Drawn, Refused, Wanted, missing_package
from fca.identity import file_sha256
from fca.types import FcaError, check_choice

DTYPES = ("float32", "float16", "bfloat16")
_ONE_AT_A_TIME = threading.Lock()  # a pipeline's scheduler holds the state of the image that it draws


@dataclass(frozen=True)
class Diffusion:
    """`generator=stable_diffusion`: a pipeline by its id at Hugging Face, or a local folder of one.

    revision: branch, tag or commit of the id; null = its main branch. The facts of each image name the commit.
    variant:  of the weights' files, e.g. fp16; null = the plain ones.
    steps:    of denoising.    guidance: how closely the words are followed; 0 for distilled ones such as SDXL Turbo.
    size:     pixels a side.    dtype: float32, float16 or bfloat16 (the last two are for GPUs).

    It runs on the GPU if there is one. The noise is drawn on the CPU, so that an image depends on its seed and not on
    the device, but for rounding. A safety checker stays as the pipeline has it: what it flags is refused.
    """

    model: str
    steps: Annotated[int, Allowed(1)]
    guidance: Annotated[float, Allowed(0)]
    size: Annotated[int, Allowed(8)]
    dtype: str
    revision: str | None = None
    variant: str | None = None

    prompted: ClassVar[bool] = True
    parallel: ClassVar[bool] = False

    def label(self) -> str:
        """The name of the model, without folders or owner.

        >>> Diffusion("stabilityai/sdxl-turbo", 1, 0.0, 512, "float16").label()
        'sdxl-turbo'
        """
        return Path(self.model).name

    def version(self) -> str:
        """Model, its revision or its folder's digest, steps, guidance, size, dtype, and the version of diffusers."""
        try:
            library = version("diffusers")
        except PackageNotFoundError as error:
            raise missing_package("diffusers") from error
        local = Path(self.model).expanduser()
        where = f"{local.name} {_content(local)}" if local.is_dir() else f"{self.model}@{self.revision or 'main'}"
        variant = f" {self.variant}" if self.variant else ""
        how = f"{self.steps} steps, guidance {self.guidance}, size {self.size}, {self.dtype}"
        return f"{where}{variant}, {how}, diffusers {library}"

    def price(self) -> float:
        return 0.0

    def draw(self, request: Wanted) -> Drawn:
        """The image, and its commit and device as facts.

        Raises Refused for what the safety checker flags, and FcaError where there is no prompt, no such pipeline, too
        little memory, or a dtype whose numbers overflow.
        """
        import torch

        prompt = request.words()
        if self.size % 8 or self.size < 8:
            raise FcaError("generator.size", self.size, "a multiple of 8", "take 512 or what the model was made for")
        check_choice("generator.dtype", self.dtype, DTYPES)
        noise = torch.Generator("cpu").manual_seed(request.seed)
        image = {"height": self.size, "width": self.size, "generator": noise, "output_type": "np"}
        try:
            with _ONE_AT_A_TIME:
                pipeline, facts = _pipeline(self)
                made = pipeline(prompt=prompt, num_inference_steps=self.steps, guidance_scale=self.guidance, **image)
        except torch.OutOfMemoryError as error:
            step = "set generator.dtype=float16, or lower generator.size"
            raise FcaError("generator.size", self.size, "what fits into the GPU's memory", step) from error
        if any(getattr(made, "nsfw_content_detected", None) or []):
            raise Refused(f"the safety checker of {self.label()} flagged the image")
        pixels = np.asarray(made.images[0], np.float32)
        if not np.isfinite(pixels).all():
            allowed = "one in which this model does not overflow"
            raise FcaError("generator.dtype", self.dtype, allowed, "set generator.dtype=float32 or bfloat16")
        return Drawn(np.rint(pixels * 255).astype(np.uint8), None, None, facts)


@cache
def _content(folder: Path) -> str:
    """12 hex digits of sha256 over the names and contents of a pipeline's files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listed = "".join(f"{path.relative_to(folder).as_posix()} {file_sha256(path)}\n" for path in files)
    return hashlib.sha256(listed.encode()).hexdigest()[:12]


@lru_cache(maxsize=1)  # they are large
def _pipeline(config: Diffusion) -> tuple[Any, dict[str, Any]]:
    """The loaded pipeline on its device, and the facts of all its images."""
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    import torch

    try:
        from diffusers import AutoPipelineForText2Image, DiffusionPipeline
    except ImportError as error:
        raise missing_package("diffusers") from error
    device = next((name for name in ("cuda", "mps") if getattr(torch, name).is_available()), "cpu")
    folder, facts = Path(config.model).expanduser(), {"device": device}
    try:
        if not folder.is_dir():
            folder = Path(DiffusionPipeline.download(config.model, revision=config.revision, variant=config.variant))
            facts["commit"] = folder.name  # Hugging Face's cache has a folder a commit
        pipeline = AutoPipelineForText2Image.from_pretrained(  # type: ignore[no-untyped-call]
            folder, dtype=getattr(torch, config.dtype), variant=config.variant, local_files_only=True
        )
    except Exception as error:  # the hub, the network and the loaders of the parts raise many kinds
        message = str(error).strip().partition("\n")[0]
        allowed = f"the folder or the id of a text-to-image pipeline ({type(error).__name__}: {message})"
        step = "correct generator.model, or connect once and try again"
        raise FcaError("generator.model", config.model, allowed, step) from error
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(device), facts
