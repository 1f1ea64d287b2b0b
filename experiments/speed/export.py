"""Is an exported network quicker than the one it was exported from? onnxruntime and TorchScript beside eager PyTorch.

    python experiments/speed/export.py            a minute on 2 cores

Three networks with random weights, one image and a batch at a time, one thread, rounds of all in turns: the median of
the ratios within a round, eager = 1. All three get bytes and give logits and probabilities.
"""

import io
import time

import numpy as np
import torch
from harness import machine, options

from fca.cli.configure import load_model
from fca.models.export import INPUT, Program, export_content

NETWORKS = {"mobilenetv3_small": 224, "resnet18": 224, "deit_s": 224}
SMALL = {"test_resnet": 32}


def readers(name, size):
    """Name -> a call that answers for images, of one network."""
    import onnxruntime

    classifier = load_model(name, input_size=size).build([str(key) for key in range(5)])
    one = onnxruntime.SessionOptions()
    one.intra_op_num_threads = one.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(export_content(classifier, "onnx"), one, providers=["CPUExecutionProvider"])
    script = torch.jit.load(io.BytesIO(export_content(classifier, "torchscript")))
    eager = Program(classifier).eval()
    return {
        "eager": lambda images: eager(torch.from_numpy(images)),
        "torchscript": lambda images: script(torch.from_numpy(images)),
        "onnxruntime": lambda images: session.run(None, {INPUT: images}),
    }


def seconds(call, images, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        call(images)
    return (time.perf_counter() - start) / repeats


def main():
    size = options(__doc__, rounds=(5, 1), batch=(8, 2), repeats=(2, 1), smallest=(0, 1))
    torch.set_num_threads(1)
    for name, side in (SMALL if size.smallest else NETWORKS).items():
        calls = readers(name, side)
        for batch in (1, size.batch):
            images = np.random.default_rng(0).integers(0, 256, (batch, side, side, 3), np.uint8)
            with torch.inference_mode():
                for call in calls.values():
                    call(images)
                    call(images)  # TorchScript compiles at the second
                rounds = [[seconds(call, images, size.repeats) for call in calls.values()] for _ in range(size.rounds)]
            others = np.median(np.array(rounds)[:, 1:] / np.array(rounds)[:, :1], axis=0)
            shares = ", ".join(f"{kind} {share:.2f}" for kind, share in zip(list(calls)[1:], others, strict=True))
            milliseconds = 1000 * np.median(np.array(rounds)[:, 0])
            print(f"{name:18} batch {batch:2}: eager {milliseconds:7.1f} ms; as a share of it: {shares}")
    machine()


if __name__ == "__main__":
    main()
