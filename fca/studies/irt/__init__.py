"""The study of irt: its tables and figures."""
