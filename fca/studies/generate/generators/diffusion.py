"""Images by any text-to-image pipeline of diffusers, such as Stable Diffusion, on this machine."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from fca.identity import file_sha256
from fca.studies.generate.protocols import Drawn, Refused, Wanted, missing_package
from fca.types import FcaError
from fca.validation import Allowed

DTYPES = ("auto", "float32", "float16", "bfloat16")
_PIPELINE_LOCK = threading.Lock()  # a pipeline's scheduler has the state of the image that it draws


@dataclass(frozen=True)
class Diffusion:
    """`generator=stable_diffusion`: a pipeline by its id at Hugging Face, or a local folder of one.

    revision: branch, tag or commit of the id; null = its main branch. The facts of each image name the commit.
    variant:  of the weights' files, e.g. fp16; null = the plain ones.
    steps:    of denoising.    guidance: how closely the prompt is followed; 0 for distilled ones such as SDXL Turbo.
    size:     pixels per side.
    dtype:    float32, float16 or bfloat16; auto = bfloat16 on CUDA GPUs that have it, float16 on others, else float32.
    batch_size: images in one pass.    devices: one process draws on each, e.g. [cuda:0, cuda:2]; null = all GPUs.

    Each image's noise is drawn on the CPU from its own seed, so that an image depends neither on the device nor on the
    other images of its batch, except for rounding. The pipeline's safety checker stays on: images that it flags are
    refused.
    """

    model: str
    steps: Annotated[int, Allowed(1)]
    guidance: Annotated[float, Allowed(0)]
    size: Annotated[int, Allowed(8)]
    dtype: Annotated[str, Allowed(choices=DTYPES)] = "auto"
    revision: str | None = None
    variant: str | None = None
    batch_size: Annotated[int, Allowed(1)] = 1
    devices: list[str] | None = None

    prompted: ClassVar[bool] = True
    parallel: ClassVar[bool] = False

    def label(self) -> str:
        """The name of the model, without folders or owner.

        >>> Diffusion("stabilityai/sdxl-turbo", 1, 0.0, 512, "float16").label()
        'sdxl-turbo'
        """
        return Path(self.model).name

    def version(self) -> str:
        """Everything that decides the pixels, in words, so that images of different settings have different versions.

        The text has the model with its revision (or the digest of its folder), the variant of its files, steps,
        guidance, size, dtype, and the version of diffusers.
        """
        try:
            library = version("diffusers")
        except PackageNotFoundError as error:
            raise missing_package("diffusers") from error
        folder = Path(self.model).expanduser()
        if folder.is_dir():
            model = f"{folder.name} {_digest_of_files(folder)}"
        else:
            model = f"{self.model}@{self.revision or 'main'}"
        variant = f" {self.variant}" if self.variant else ""
        settings = f"{self.steps} steps, guidance {self.guidance}, size {self.size}, {self.dtype}"
        return f"{model}{variant}, {settings}, diffusers {library}"

    def price(self) -> float:
        return 0.0

    def places(self) -> Sequence[str]:
        """The devices for drawing. Raises FcaError for an empty list."""
        if self.devices is None:
            return _available_devices()
        if not self.devices:
            raise FcaError("generator.devices", "none", "at least one, or null for all", "name one, e.g. [cuda:0]")
        return self.devices

    def on(self, device: str) -> Diffusion:
        """The same generator on one device."""
        return replace(self, devices=[device])

    def prepare(self) -> None:
        """Load the pipeline onto the first device. Raises FcaError for a missing pipeline or device."""
        with _PIPELINE_LOCK:
            self._loaded()

    def draw(self, request: Wanted) -> Drawn:
        """The image, and its commit, device and dtype as facts. Raises Refused, and FcaError as draw_batch does."""
        [result] = self.draw_batch([request])
        if isinstance(result, Refused):
            raise result
        return result

    def draw_batch(self, requests: Sequence[Wanted]) -> list[Drawn | Refused]:
        """The images in one pass, with Refused in place of each that the safety checker flags.

        Raises FcaError for a missing prompt or pipeline, a size that is no multiple of 8, too little memory, and a
        dtype that overflows.
        """
        import torch

        prompts = [request.words() for request in requests]
        if self.size % 8 or self.size < 8:
            raise FcaError("generator.size", self.size, "a multiple of 8", "take 512 or what the model was made for")
        # A generator for each image, on the CPU: so its noise depends neither on the other images of the pass nor on
        # the device.
        noise = [torch.Generator("cpu").manual_seed(request.seed) for request in requests]
        try:
            with _PIPELINE_LOCK:  # one thread at a time: the pipeline keeps the state of the images that it draws
                pipeline, facts = self._loaded()  # facts: its device, dtype and commit
                output = pipeline(
                    prompt=prompts,
                    num_inference_steps=self.steps,
                    guidance_scale=self.guidance,
                    height=self.size,
                    width=self.size,
                    generator=noise,
                    output_type="np",
                )
        except torch.OutOfMemoryError as error:
            key = "batch_size" if len(prompts) > 1 else "size"  # a single image is itself too large
            step = f"lower generator.{key}, or set generator.dtype=float16"
            raise FcaError(
                f"generator.{key}", getattr(self, key), "what fits into the device's memory", step
            ) from error

        images = np.asarray(output.images, np.float32)
        if not np.isfinite(images).all():
            allowed = "one in which this model does not overflow"
            raise FcaError("generator.dtype", facts["dtype"], allowed, "set generator.dtype=float32 or bfloat16")

        # pipelines without a safety checker lack the attribute, or set it to None
        is_flagged = getattr(output, "nsfw_content_detected", None) or [False] * len(prompts)
        refusal = Refused(f"the safety checker of {self.label()} flagged the image")
        results: list[Drawn | Refused] = []
        for image, flagged in zip(images, is_flagged, strict=True):
            pixels = np.rint(image * 255).astype(np.uint8)
            results.append(refusal if flagged else Drawn(pixels, visible=None, full=None, facts=facts))  # no masks
        return results

    def _loaded(self) -> tuple[Any, dict[str, Any]]:
        """The pipeline on the first device, and the facts to store with its images."""
        device = self.places()[0]
        return _pipeline(self.model, self.revision, self.variant, _dtype(self.dtype, device), device)


@cache
def _available_devices() -> tuple[str, ...]:
    """All CUDA GPUs; otherwise Apple's GPU; otherwise the CPU."""
    import torch

    if torch.cuda.is_available():
        return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
    return ("mps",) if torch.backends.mps.is_available() else ("cpu",)


def _dtype(dtype: str, device: str) -> str:
    """The dtype, with `auto` resolved for a device: float32 on Apple's GPUs, where some pipelines give black images."""
    import torch

    if dtype != "auto":
        return dtype
    if not device.startswith("cuda"):
        return "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"


@cache
def _digest_of_files(folder: Path) -> str:
    """12 hex digits of sha256 over the names and contents of a pipeline's files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listing = "".join(f"{path.relative_to(folder).as_posix()} {file_sha256(path)}\n" for path in files)
    return hashlib.sha256(listing.encode()).hexdigest()[:12]


@lru_cache(maxsize=1)  # only one pipeline stays in memory: they are large
def _pipeline(model: str, revision: str | None, variant: str | None, dtype: str, device: str) -> tuple[Any, Any]:
    """A diffusion pipeline on its device, and the facts to store with each of its images (device, dtype, commit).

    model:    a folder, or the id of a model on Hugging Face, which is downloaded.
    revision: branch, tag or commit of the id; None: its main branch.
    variant:  which of the model's files, such as fp16; None: the plain ones.

    Raises FcaError for a missing package, a model that cannot be loaded, too little memory and a missing device.
    """
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()  # diffusers may import torchvision, which fails with a CPU build of torch otherwise
    import torch

    try:
        from diffusers import AutoPipelineForText2Image, DiffusionPipeline
    except ImportError as error:
        raise missing_package("diffusers") from error
    folder = Path(model).expanduser()
    facts = {"device": device, "dtype": dtype}
    try:
        if not folder.is_dir():
            folder = Path(DiffusionPipeline.download(model, revision=revision, variant=variant))
            facts["commit"] = folder.name  # Hugging Face's cache has one folder per commit
        # local_files_only: all files are here by now
        pipeline = AutoPipelineForText2Image.from_pretrained(  # type: ignore[no-untyped-call]
            folder, dtype=getattr(torch, dtype), variant=variant, local_files_only=True
        )
    except Exception as error:  # the hub, the network and the loaders of the parts raise many kinds
        message = str(error).strip().partition("\n")[0]
        allowed = f"the folder or the id of a text-to-image pipeline ({type(error).__name__}: {message})"
        step = "correct generator.model, or connect once and try again"
        raise FcaError("generator.model", model, allowed, step) from error
    pipeline.set_progress_bar_config(disable=True)
    try:
        return pipeline.to(device), facts
    except torch.OutOfMemoryError as error:
        step = "set generator.dtype=float16, or take a larger device"
        raise FcaError("generator.model", model, f"what fits into the memory of {device}", step) from error
    except (RuntimeError, AssertionError) as error:  # no such device, or a torch that was built without its kind
        step = "correct generator.devices; null takes what there is"
        raise FcaError(
            "generator.devices", device, f"a device of this machine: {', '.join(_available_devices())}", step
        ) from error
