"""A phase whose server does not trust every client: a rule judges the replies, then the phase inside goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from acclimate import trees
from acclimate.contracts import Replies, Reply, Task
from acclimate.robust.rule import Rule
from acclimate.training.around import Around
from acclimate.trees import Nest


class Wary(NamedTuple):
    """The server of the phase inside, and what the rule remembers."""

    of: Nest
    memory: Nest


@dataclass(frozen=True)
class Judging(Around[Wary, Any], Rule):
    """The phase `of`, a mean or a sum of replies, with what a rule makes of them instead of what clients sent.

    Clients with more examples still count more, except in the rules that choose for all.
    """

    def __post_init__(self) -> None:
        if self.of.keeps:
            raise ValueError(f"of: {type(self.of).__name__} is no mean of replies: it looks at each of them")

    @property
    def keeps(self) -> bool:
        return True

    def init(self, task: Task) -> Wary:
        return Wary(self.of.init(task), None)

    def broadcast(self, server: Wary, id: int) -> Any:
        return self.of.broadcast(server.of, id)

    def server_update(self, server: Wary, replies: Replies) -> Wary:
        ids, sent = zip(*replies.items(), strict=True)
        flat = [trees.flatten(reply.update) for reply in sent]
        judged = self.judge(ids, [tensors for tensors, _ in flat], server.memory)
        trusted = Replies()
        trusted.metrics, trusted.left_out, trusted.lost = dict(replies.metrics), list(replies.left_out), replies.lost
        for id, reply, (_, skeleton), own, count in zip(ids, sent, flat, judged.sent, judged.counts, strict=True):
            if count > 0:
                trusted.add(id, Reply(trees.unflatten(list(own), skeleton), reply.weight * count, reply.metrics))
            else:
                trusted.left_out.append(id)
        after = self.of.server_update(server.of, trusted) if trusted.weight > 0 else server.of
        return Wary(after, judged.memory)

    def release(self, server: Wary, id: int) -> Any:
        return self.of.release(server.of, id)
