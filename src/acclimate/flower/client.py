"""The ClientApp: a node whose owner decides, with `--node-config`, which clients it serves and what it may import.

data, name                      its folder of images, and what it is called (scenario `nodes`)
partition-id, num-partitions    its part of another scenario's clients, for trials
folder                          where it keeps what it knows; by default in the cache folder
plugins                         code outside acclimate that it may import, separated by blanks: ./mine.py:Method
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp

from acclimate import plugins
from acclimate.data.folders import cache_folder
from acclimate.errors import AcclimateError
from acclimate.flower.codec import Letter, written
from acclimate.flower.grid import of_records, to_records
from acclimate.flower.node import Node

_nodes: dict[str, Node] = {}  # where a process lives on, as in a simulation


def node_of(config: Mapping[str, Any]) -> Node:
    """The node that an owner has configured."""
    key = repr(sorted(config.items()))
    if key not in _nodes:
        part = (int(config.get("partition-id", 0)), int(config.get("num-partitions", 1)))
        data, name = config.get("data"), str(config.get("name", ""))
        folder = config.get("folder") or cache_folder() / "nodes" / (name or f"{part[0]}-of-{part[1]}")
        listed = plugins.listed(str(config.get("plugins", "")).split())
        _nodes[key] = Node(Path(folder).expanduser(), part, listed, Path(data).expanduser() if data else None, name)
    return _nodes[key]


def answered(message: Any, config: Mapping[str, Any]) -> Any:
    """The answer to a message."""
    try:
        found = node_of(config).answer(of_records(message.content))
    except (AcclimateError, ValueError) as error:  # of its owner's configuration, or no letter of ours
        found = Letter(written({"error": f"{type(error).__name__}: {error}"}), {})
    return Message(to_records(found), reply_to=message)


def _answer(message: Any, context: Any) -> Any:
    return answered(message, context.node_config)


app = ClientApp()
for _listen in (app.query, app.train, app.evaluate):
    _listen()(_answer)
