"""The same federated training by others: the sides of `compare.py`, each in a process of its own."""
