"""Clients on other machines: the same experiment on Flower. Only `apps.py` and `grid.py` import it."""
