"""Do K sub-models of one architecture train faster together in one process than one after another, or in two processes?

    python experiments/speed/fused.py            about 4 minutes on 2 cores; on a GPU machine also graphs and streams

A step trains K networks of 5 classes at 32 pixels, each on a batch of 64 images of its own, with AdamW. Ways:
  loop     one network after another: what `fca run` does in one process; the others are measured against it
  2 procs  two processes, half of the networks each: what `hydra/launcher=joblib` does on two cores or one GPU
  vmap     torch.func: stacked weights, one batched forward and backward pass (its convolutions are grouped ones)
  grouped  written out: convolutions with K groups, batch norms and heads over all K networks' channels
  streams  on CUDA only: the loop with a stream a network
  graphs   on CUDA only: the loop's step captured once, replayed
The first gradients of vmap and grouped must be those of the loop to 1e-5 of the largest, or the script stops.
Expect on a CPU: at most 1.25 times the loop, which two processes on two free cores beat; so fca has no code for it.
"""

import copy
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from harness import composed, machine, options
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, pad

from fca.cli.configure import component
from fca.models.networks import CifarBlock

CLASSES, BATCH, SIDE, TOLERANCE, ENOUGH_S = 5, 64, 32, 1e-5, 1.0
NETWORKS = ("test_resnet", "test_vit", "cifar_resnet20")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def built(name, count):
    """So many networks of different first weights, in training mode and channels-last order as fca trains them."""
    model = component(composed(f"model={name}"), "model")
    nets = []
    for seed in range(count):
        torch.manual_seed(seed)
        net = model.build([str(i) for i in range(CLASSES)]).module
        nets.append(net.train().to(DEVICE, memory_format=torch.channels_last))
    return nets


def batches(count):
    """Images and labels of every network's batch."""
    torch.manual_seed(count)
    images = torch.randn(count, BATCH, 3, SIDE, SIDE, device=DEVICE)
    return images, torch.randint(0, CLASSES, (count, BATCH), device=DEVICE)


def optimiser_of(parameters, **options):
    return torch.optim.AdamW(parameters, lr=1e-3, **options)


class Loop:
    """One network after another, each with an optimiser of its own; `streams`: each on a CUDA stream of its own."""

    def __init__(self, nets, streams=False, capturable=False):
        self.nets = nets
        self.optimisers = [optimiser_of(net.parameters(), capturable=capturable) for net in nets]
        self.streams = [torch.cuda.Stream() for _ in nets] if streams else []

    def gradients(self, images, labels):
        for net, x, y in zip(self.nets, images, labels, strict=True):
            cross_entropy(net(x.contiguous(memory_format=torch.channels_last)), y).backward()
        return [torch.stack(same) for same in zip(*([p.grad for p in n.parameters()] for n in self.nets), strict=True)]

    def step(self, images, labels):
        for at, (net, optimiser, x, y) in enumerate(zip(self.nets, self.optimisers, images, labels, strict=True)):
            with torch.cuda.stream(self.streams[at] if self.streams else None):
                optimiser.zero_grad()
                cross_entropy(net(x.contiguous(memory_format=torch.channels_last)), y).backward()
                optimiser.step()


class Graphs(Loop):
    """The loop's step as one CUDA graph: captured once, replayed on the same memory."""

    def __init__(self, nets, images, labels):
        super().__init__(nets, capturable=True)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                super().step(images, labels)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            super().step(images, labels)

    def step(self, images, labels):
        self.graph.replay()


class Vmap:
    """Stacked weights and buffers; batch norm's running averages are buffers, one of each network."""

    def __init__(self, nets):
        self.skeleton = copy.deepcopy(nets[0]).to("meta")
        self.parameters, self.buffers = stack_module_state(nets)
        self.optimiser = optimiser_of(self.parameters.values())

    def gradients(self, images, labels):
        def loss(parameters, buffers, x, y):
            return cross_entropy(functional_call(self.skeleton, (parameters, buffers), (x,)), y)

        with sdpa_kernel(SDPBackend.MATH):  # of the others, the CPU's cannot be batched
            found, _ = vmap(grad_and_value(loss), randomness="different")(self.parameters, self.buffers, images, labels)
        return [gradient.detach() for gradient in found.values()]

    def step(self, images, labels):
        for parameter, gradient in zip(self.parameters.values(), self.gradients(images, labels), strict=True):
            parameter.grad = gradient
        self.optimiser.step()


class Heads(nn.Module):
    """The last linear layers of K networks on features that lie behind one another."""

    def __init__(self, heads):
        super().__init__()
        self.weight = nn.Parameter(torch.stack([head.weight.detach() for head in heads]))
        self.bias = nn.Parameter(torch.stack([head.bias.detach() for head in heads]))

    def forward(self, x):
        features = x.unflatten(1, (len(self.weight), -1))
        return torch.einsum("bkf,kcf->kbc", features, self.weight) + self.bias[:, None]


def grouped_block(block, networks):
    """He's block whose shortcut pads channels: K networks' channels are padded each for itself."""

    def forward(x):
        out = block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(x)))))
        if out.shape != x.shape:
            short = x[:, :, ::2, ::2].unflatten(1, (networks, -1))
            more = (out.shape[1] - x.shape[1]) // networks
            x = pad(short, (0, 0, 0, 0, more // 2, more // 2)).flatten(1, 2)
        return torch.relu(out + x)

    block.forward = forward


class Grouped:
    """One network whose channels are those of all networks; of convolutions, batch norms and one linear layer."""

    def __init__(self, nets):
        self.net = copy.deepcopy(nets[0])
        for name, module in list(self.net.named_modules()):
            same = [net.get_submodule(name) for net in nets]
            if isinstance(module, CifarBlock):
                grouped_block(module, len(nets))
            elif isinstance(module, nn.Conv2d | nn.BatchNorm2d):
                self._widen(module, same)
            elif isinstance(module, nn.Linear):
                self.net.set_submodule(name, Heads(same))
        self.shapes = [p.shape for p in nets[0].parameters()]
        self.optimiser = optimiser_of(self.net.parameters())

    @staticmethod
    def _widen(module, same):
        for name in (*(name for name, _ in module.named_parameters()), *(name for name, _ in module.named_buffers())):
            values = [getattr(one, name) for one in same]
            if values[0].dim():
                wide = torch.cat([value.detach() for value in values])
                setattr(module, name, nn.Parameter(wide) if isinstance(values[0], nn.Parameter) else wide)
        if isinstance(module, nn.Conv2d):
            module.groups *= len(same)
        else:
            module.num_features *= len(same)

    def _losses(self, images, labels):
        beside = images.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)
        logits = self.net(beside)
        return cross_entropy(logits.flatten(0, 1), labels.flatten()) * len(labels)  # the sum of K means

    def gradients(self, images, labels):
        self._losses(images, labels).backward()
        return [
            p.grad.reshape(len(labels), *shape) for p, shape in zip(self.net.parameters(), self.shapes, strict=True)
        ]

    def step(self, images, labels):
        self.optimiser.zero_grad()
        self._losses(images, labels).backward()
        self.optimiser.step()


def ways_of(name, count):
    """Each way of training, with its own copy of the same networks; None where device or network lacks it."""
    cuda, images = DEVICE == "cuda", batches(count)
    return {
        "loop": lambda: Loop(built(name, count)),
        "vmap": lambda: Vmap(built(name, count)),
        "grouped": None if "vit" in name else lambda: Grouped(built(name, count)),
        "streams": (lambda: Loop(built(name, count), streams=True)) if cuda else None,
        "graphs": (lambda: Graphs(built(name, count), *images)) if cuda else None,
    }


def check_gradients(name, count):
    """The largest difference of a first gradient from the loop's, as a share of the largest gradient there is."""
    images, labels = batches(count)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # which rounds to a thousandth
        reference, furthest = Loop(built(name, count)).gradients(images, labels), {}
        largest = max(gradient.abs().max().item() for gradient in reference)
        for way in ("vmap", "grouped"):
            if make := ways_of(name, count)[way]:
                pairs = zip(make().gradients(images, labels), reference, strict=True)
                furthest[way] = max((a - b).abs().max().item() for a, b in pairs) / largest
                assert furthest[way] < TOLERANCE, (name, way, furthest[way])
    return furthest


def seconds(trained, images, labels, steps):
    """Wall seconds of a step, after one to warm up; of slow ones fewer are timed."""
    _wait()  # streams of their own do not wait for the weights
    trained.step(images, labels)
    _wait()
    start = time.perf_counter()
    done = 0
    while done < steps and (DEVICE == "cuda" or time.perf_counter() - start < ENOUGH_S):
        trained.step(images, labels)
        done += 1
    _wait()
    return (time.perf_counter() - start) / done


def _wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def half(name, count, steps, threads, barrier):
    """In a process of its own: seconds of a step of its share of the networks, while the other one works."""
    torch.set_num_threads(threads)
    trained, (images, labels) = Loop(built(name, count)), batches(count)
    trained.step(images, labels)
    _wait()
    barrier.wait()
    return seconds(trained, images, labels, steps)


def main():
    size = options(__doc__, most=(16, 2), steps=(5, 1), repeats=(2, 1))
    ways = ("loop", "2 procs", "vmap", "grouped", "streams", "graphs")
    print(f"{DEVICE}, torch {torch.__version__}, {torch.get_num_threads()} threads; milliseconds a network and step,")
    print("(times as fast as the loop, times as fast as two processes)")
    print(f"{'network':16}{'K':>3}" + "".join(f"{way:>22}" for way in ways) + "   gradients apart")
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(2, mp_context=context) as pool:
        for name in NETWORKS:
            for count in (k for k in (2, 4, 8, 16) if k <= size.most and (k > 2 or size.smoke)):
                apart = check_gradients(name, count)
                images, labels = batches(count)
                made = {way: make() for way, make in ways_of(name, count).items() if make}
                took = {way: [] for way in (*made, "2 procs")}
                for _ in range(size.repeats):  # in turns: other work on the machine then meets all of them
                    for way, trained in made.items():
                        took[way].append(seconds(trained, images, labels, size.steps))
                    barrier = manager.Barrier(2)
                    share = (name, count // 2, size.steps, max(1, torch.get_num_threads() // 2), barrier)
                    took["2 procs"].append(max(f.result() for f in [pool.submit(half, *share) for _ in range(2)]))
                best = {way: min(times) / count for way, times in took.items()}
                cells = [_cell(best, way) for way in ways]
                checked = ", ".join(f"{way} {value:.0e}" for way, value in apart.items())
                print(f"{name:16}{count:>3}" + "".join(f"{cell:>22}" for cell in cells) + f"   {checked}", flush=True)
    machine()


def _cell(best, way):
    if way not in best:
        return ""
    return f"{1e3 * best[way]:.1f} ({best['loop'] / best[way]:.2f}, {best['2 procs'] / best[way]:.2f})"


if __name__ == "__main__":
    main()
