"""The study of progressive: its tables and figures."""
