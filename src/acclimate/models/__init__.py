"""Models, and helpers that work on any module."""
