"""Data sets: loaders that list images (a frozen dataclass and a YAML each), splits, decoding, cached pixels."""
