"""Networks that timm can build but has no name for: narrow MobileNetV1 (arXiv:1704.04861), padded as TensorFlow does.

Importing this file makes the names known to timm.
"""

from __future__ import annotations

from typing import Any

from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()
from timm.models import EfficientNet, generate_default_cfgs, register_model  # noqa: E402
from timm.models.efficientnet import _gen_mobilenet_v1  # noqa: E402

_RECORD = {"num_classes": 1000, "input_size": (3, 224, 224), "first_conv": "conv_stem", "classifier": "classifier"}
default_cfgs = generate_default_cfgs({"mobilenetv1_025.untrained": _RECORD, "mobilenetv1_050.untrained": _RECORD})


@register_model
def mobilenetv1_025(pretrained: bool = False, **kwargs: Any) -> EfficientNet:
    """A quarter of the channels."""
    return _narrow("mobilenetv1_025", 0.25, pretrained, kwargs)


@register_model
def mobilenetv1_050(pretrained: bool = False, **kwargs: Any) -> EfficientNet:
    """Half of the channels."""
    return _narrow("mobilenetv1_050", 0.5, pretrained, kwargs)


def _narrow(name: str, channels: float, pretrained: bool, kwargs: dict[str, Any]) -> EfficientNet:
    kwargs = {"pad_type": "same", **kwargs}
    network: EfficientNet = _gen_mobilenet_v1(name, channels, pretrained=pretrained, **kwargs)  # type: ignore[no-untyped-call]
    return network
