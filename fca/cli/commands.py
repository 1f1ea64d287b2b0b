"""The sub-commands of `fca`, each a module of this package, with what it does."""

COMMANDS = {
    "run": "train, predict, embed or describe: one configuration, or a sweep with -m",
    "recommend": "which model for a folder of images:  fca recommend photos latency_ms=10 minutes=30",
    "analyse": "compute an analysis from stored runs:  fca analyse analysis=few_class",
    "report": "one page of figures, tables and commands:  fca report report=few_class",
    "generate": "test images in levels of difficulty:  fca generate generator=rendered plan=rendered",
    "bank": "an item bank, or a few images that stand for all, as one file:  fca bank ID bank.json",
    "export": "a trained network as one file:  fca export run=ID format=onnx",
    "predict": "classes of new images, with probabilities and abstentions:  fca predict FOLDER run=ID",
    "results": "stored runs as a table:  fca results ncl=2,5 --by model,ncl --sort -top1",
    "show": "one run: configuration, numbers, curves, command, files:  fca show ID",
    "diff": "two runs or more: keys, numbers and images on which they differ:  fca diff ID ID",
    "status": "what is done, running and failed, why, and how long it will take",
    "wandb": "the store in W&B:  fca wandb sync    fca wandb report report=few_class",
    "clean": "what takes room and can be made again; removes it with --yes",
    "doctor": "what is installed and found here, what is missing for which feature, and how to get it",
}
