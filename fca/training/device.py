"""Where tensors live and what that place is called. Nothing assumes a GPU."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from fca.types import FcaError

ACCELERATORS = ("auto", "cpu", "gpu")


def device_of(accelerator: str) -> torch.device:
    """auto: the GPU that there is (CUDA or Apple's), else the CPU. Raises FcaError for a GPU that is not there."""
    if accelerator not in ACCELERATORS:
        raise FcaError("machine.accelerator", accelerator, ", ".join(ACCELERATORS), "leave it at auto")
    gpu = next((name for name in ("cuda", "mps") if getattr(torch, name).is_available()), None)
    if accelerator == "gpu" and gpu is None:
        raise FcaError("machine.accelerator", accelerator, "auto or cpu: torch sees no GPU", "check torch.cuda")
    return torch.device("cpu" if accelerator == "cpu" or gpu is None else gpu)


def device_name(accelerator: str) -> str:
    """The name of the device in a row: the GPU's, or the processor's with the number of threads that torch uses."""
    device = device_of(accelerator)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"{platform.processor()} GPU"
    listed = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", listed.read_text()) if listed.is_file() else None
    return f"{found[1] if found else platform.processor()}, {torch.get_num_threads()} threads"


def to_device(pixels: UInt8[np.ndarray, "*shape"], device: torch.device) -> UInt8[Tensor, "*shape"]:
    """A copy on the device; to CUDA through pinned memory, so that nobody waits for it."""
    tensor = torch.from_numpy(np.ascontiguousarray(pixels))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def as_input(images: UInt8[Tensor, "batch size size 3"]) -> Float32[Tensor, "batch 3 size size"]:
    """Bytes as stored -> [0, 1]. The strides stay: that is `channels_last`, in which convolutions are fastest."""
    return images.permute(0, 3, 1, 2).float().div_(255)
