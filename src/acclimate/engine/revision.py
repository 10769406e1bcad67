"""The engine's code is not part of digests: this number stands for it.

Raise it when an edit to the engine, the contracts or what they stand on changes a bit of what is trained or tested;
everything is then made again. An edit that changes none is declared so: `python tests/recorded/engine.py`. A test fails
until one or the other is done.
"""

REVISION = 1
