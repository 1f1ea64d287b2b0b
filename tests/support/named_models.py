"""What several tests share: models that conf/ names."""

from fca.cli.places import CONF

GENERIC = {"grouped", "mmpretrain", "open_clip", "resnet50_robust", "compiled", "onnx", "run", "timm", "torchvision"}
NAMED = sorted({path.stem for path in (CONF / "model").glob("*.yaml")} - GENERIC)
