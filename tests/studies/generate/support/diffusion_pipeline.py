"""What several tests share: a diffusion pipeline of a few weights."""

import json

import pytest


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a pipeline with 0.2 M parameters."""
    import torch

    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    folder = tmp_path_factory.mktemp("tiny") / "tiny-diffusion"
    words = ["<|startoftext|>", "<|endoftext|>", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"{letter}</w>" for letter in "abcdefghijklmnopqrstuvwxyz"]
    vocabulary, merges = folder.parent / "vocab.json", folder.parent / "merges.txt"
    vocabulary.write_text(json.dumps({word: number for number, word in enumerate(words)}))
    merges.write_text("#version: 0.2\n")
    torch.manual_seed(0)
    text = CLIPTextConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4,
        bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    pipeline = StableDiffusionPipeline(
        unet=UNet2DConditionModel(
            block_out_channels=(8, 16), layers_per_block=1, sample_size=16, cross_attention_dim=32, norm_num_groups=4,
            attention_head_dim=4,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        ),
        vae=AutoencoderKL(
            block_out_channels=[8, 16], latent_channels=4, norm_num_groups=4,
            down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2,
        ),
        text_encoder=CLIPTextModel(text),
        tokenizer=CLIPTokenizer(str(vocabulary), str(merges), model_max_length=77),
        scheduler=DDIMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    pipeline.save_pretrained(folder)
    return folder
