"""The study of adaptive: its tables and figures."""
