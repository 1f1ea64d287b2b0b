"""What timm knows about its names: which there are, which weights have which tag."""

from __future__ import annotations

import difflib
from functools import cache

from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()
from timm.models import PretrainedCfg, get_pretrained_cfg, is_model, list_models, list_pretrained  # noqa: E402

from fca.models import mobilenet  # noqa: E402, F401  (makes its names known to timm)
from fca.nouns import FcaError  # noqa: E402


@cache
def record_of(name: str) -> PretrainedCfg:
    """What timm knows about a name's weights and their input; raises FcaError for a name or tag it does not know."""
    architecture, _, tag = name.partition(".")
    if not is_model(architecture):
        names = list_models()
        near = difflib.get_close_matches(architecture, names) or names[:3]
        allowed = f"one of timm's {len(names)} names, such as {', '.join(near)}"
        raise FcaError("model.name", name, allowed, "list them: python -c 'import timm; print(timm.list_models())'")
    try:
        record = get_pretrained_cfg(name)
    except RuntimeError:
        record = None
    if record is None:
        raise FcaError("model.name", name, _tags(architecture), f"correct the tag {tag!r}, or leave it out")
    return record


def resolved_tag(name: str) -> str:
    """The name with the tag of the weights that timm would fetch; raises FcaError if there are none."""
    record = record_of(name)
    if not record.has_weights:
        architecture = name.partition(".")[0]
        raise FcaError("model.weights", "pretrained", _tags(architecture), "train it from scratch: model.weights=null")
    return f"{record.architecture}.{record.tag}" if record.tag else str(record.architecture)


def _tags(architecture: str) -> str:
    tags = ", ".join(list_pretrained(f"{architecture}.*"))
    return tags if tags else f"no pretrained weights: timm has none for {architecture}"
