"""Training and inference of built classifiers."""
