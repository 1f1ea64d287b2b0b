"""The study of few_class: its tables and figures."""
