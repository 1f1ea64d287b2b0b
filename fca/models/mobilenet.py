"""Networks that timm can build but has no name for: narrow MobileNetV1 (arXiv:1704.04861), padded as TensorFlow does.

Importing this file makes the names known to timm.
"""

from __future__ import annotations

from typing import Any

from timm.models import EfficientNet, register_model
from timm.models.efficientnet import _gen_mobilenet_v1


@register_model
def mobilenetv1_025(pretrained: bool = False, **kwargs: Any) -> EfficientNet:
    """A quarter of the channels."""
    return _narrow(0.25, pretrained, kwargs)


@register_model
def mobilenetv1_050(pretrained: bool = False, **kwargs: Any) -> EfficientNet:
    """Half of the channels."""
    return _narrow(0.5, pretrained, kwargs)


def _narrow(channels: float, pretrained: bool, kwargs: dict[str, Any]) -> EfficientNet:
    # timm looks up the record of the wide network: it refuses a variant without one.
    kwargs = {"pad_type": "same", **kwargs}
    network: EfficientNet = _gen_mobilenet_v1("mobilenetv1_100", channels, pretrained=pretrained, **kwargs)  # type: ignore[no-untyped-call]
    return network
