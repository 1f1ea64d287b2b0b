"""Small towers of Open CLIP with random weights, without which it cannot name classes."""

import torch
from safetensors.torch import save_file

from fca.models.open_clip_models import _open_clip, _quiet

NAME = "ViT-S-32-alt"


def write_towers(path):
    """The network as Open CLIP builds it; its weights are written to the file."""
    torch.manual_seed(0)
    with _quiet():
        network = _open_clip().create_model(NAME).eval()
    save_file(network.state_dict(), path)
    return network
