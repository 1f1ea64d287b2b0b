"""Networks and encoders: frozen dataclasses that are cheap to plan with, and build a Classifier when asked."""
