"""Data sets and what can happen to images."""
