"""Which model to use for a folder of images, within limits of latency, memory and time."""
