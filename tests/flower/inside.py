"""A line to nodes in this process, each letter met by a node as new as a process of Flower's would be."""

from acclimate.engine.messages import Lost
from acclimate.flower.codec import Letter
from acclimate.flower.node import Node


class Inside:
    """Two nodes by default; `lose(kind, number, node)`: why the answer to the number-th letter of a kind gets lost."""

    def __init__(self, folder, nodes=2, lose=lambda kind, number, node: None, **of_nodes):
        self.folder, self.number, self.of_nodes, self.lose = folder, nodes, of_nodes, lose
        self.letters = []  # kind, node, letter, answer
        self.asked = []  # how many letters each call sent, with their kind
        self.gone = set()

    def nodes(self):
        return [100 + k for k in range(self.number) if 100 + k not in self.gone]

    def node(self, id):
        return Node(self.folder / str(id), (id - 100, self.number), **self.of_nodes)

    def ask(self, kind, letters, seconds):
        self.asked.append((kind, len(letters)))
        for id, letter in letters.items():
            number = sum(k == kind and node == id for k, node, _, _ in self.letters)
            answer = self.changed(kind, id, self.node(id).answer(Letter(letter.text, dict(letter.blobs))))
            self.letters.append((kind, id, letter, answer))
            why = self.lose(kind, number, id)
            yield id, Lost(why) if why else answer

    def changed(self, kind, id, answer):
        return answer
