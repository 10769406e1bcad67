"""The chaos suite: seeded faults of every kind. `make chaos` runs it and writes the figures to docs/reliability.md.

Every part returns what went wrong: a traceback, a wrong result, a hang. Whatever it ever found stays as a case with a
name in the tests beside it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import battery
import liars
import test_kill
from acclimate import trees
from acclimate.data.packs import open_pack
from acclimate.engine.checkpoint import Checkpoint
from acclimate.errors import AcclimateError, Damage, MissingData
from acclimate.experiment.cache import sound_checkpoint
from acclimate.experiment.catalog import PHASES, shipped
from acclimate.experiment.reader import read

LONGEST = 20  # seconds that anything may take
DOCS = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
TOKENS = (
    "[", "]", "{", "}", ":", "- ", "*a", "&a ", "!!int ", "!!set ", "@", "\x00", "\t", "\n", "'", '"', "²", "-1", "=",
    ".inf", "1e999", "10" * 30, "null", "true", "<<: ", "\x1b[31m", "[/red]", "2020-99-99", "é", "\ud7ff", "%", "|",
    ">", "?", "~", "..",
)  # fmt: skip


class Hang(BaseException):
    """Something took longer than anything may."""


def patience() -> int:
    """LONGEST, and in proportion more where other work wants the same processors."""
    return round(LONGEST * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


@contextmanager
def limited() -> Iterator[None]:
    """Ends what takes too long."""

    def end(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, end)
    signal.alarm(patience())
    try:
        yield
    finally:
        signal.alarm(0)


def attempt(what: str, call: Callable[[], str | None]) -> list[str]:
    """What went wrong in a call that may refuse in words, but nothing else."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore", Damage)
            wrong = call()
    except AcclimateError as error:
        wrong = "a message longer than a page" if len(str(error)) > 40_000 else None
    except Hang:
        wrong = f"took longer than {LONGEST} s"
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"[:300]
    return [f"{what}: {wrong}"] if wrong else []


def mutated(content: bytes, draw: random.Random) -> bytes:
    """A file with some bytes flipped, cut, zeroed or doubled."""
    found = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        at, size = draw.randrange(max(len(found), 1)), draw.randint(1, max(1, len(found) // 8))
        match draw.randrange(5):
            case 0 if found:
                found[at] ^= 1 << draw.randrange(8)
            case 1:
                del found[at:]
            case 2:
                found[at : at + size] = bytes(len(found[at : at + size]))
            case 3:
                del found[at : at + size]
            case _:
                found[at:at] = found[at : at + size]
    return bytes(found)


def experiments(number: int, seed: int) -> list[str]:
    """Mutated experiment files and overrides: read, or refused in words."""
    wrong, sources = [], [path.read_text(encoding="utf-8") for path in shipped().values()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "experiment.yaml"
        for case in range(number):
            draw = random.Random(f"{seed} {case}")
            text = draw.choice(sources)
            for _ in range(draw.randint(1, 4)):
                at = draw.randrange(len(text) or 1)
                cut = draw.choice((0, 0, 1, draw.randint(1, 40)))
                text = text[:at] + draw.choice((*TOKENS, text[at : at + 30])) + text[at + cut :]
            path.write_text(text, encoding="utf-8", errors="surrogatepass")
            keys = (
                "seeds",
                "name",
                "phases.0.rounds",
                "systems.0",
                "test.batch_size",
                "scenario.data",
                "model",
                "a.b.c",
            )
            values = (*TOKENS, *(f"[{token}]" for token in TOKENS), *(f"{{name: {token}}}" for token in TOKENS))
            more = [f"{draw.choice(keys)}={draw.choice(values)}"] if draw.random() < 0.5 else []
            source = str(path) if draw.random() < 0.7 else "quickstart"
            wrong += attempt(f"experiment {case} {more}", lambda source=source, more=more: read(source, more) and None)
    return wrong


def packs(number: int, seed: int) -> list[str]:
    """Damaged packs: refused in words, or the images that were meant."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        whole, path = Path(folder) / "whole.npz", Path(folder) / "pack.npz"
        images = np.random.default_rng(seed).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
        np.savez_compressed(whole, x=images, y=np.arange(40) % 5, writer=np.arange(40))

        def look() -> str | None:
            try:
                pack = open_pack(path, 5, (3, 8, 8))
            except MissingData:
                return None
            same = np.array_equal(np.load(pack.images), images) and pack.labels.tolist() == [i % 5 for i in range(40)]
            return None if same else "other images than were meant, and no word"

        for case in range(number):
            path.write_bytes(mutated(whole.read_bytes(), random.Random(f"{seed} {case}")))
            wrong += attempt(f"pack {case}", look)
    return wrong


def states(number: int, seed: int) -> list[str]:
    """Damaged checkpoints: made again, named, or what was written."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        whole, path = Path(folder) / "whole.sqlite", Path(folder) / "phase.sqlite"
        saved = Checkpoint(whole)
        battery.run_phase("scaffold", rounds=2, cohort="all", checkpoint=saved)
        meant = {saved.server(2), *(saved.client(id) for id in range(4))}
        saved._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        saved.close()

        def look() -> str | None:
            found = sound_checkpoint(path)
            try:
                if found.last() is None:
                    return None
                kept = [found.server(found.last() or 0), *(found.client(id) for id in range(4))]
                same = found.last() == 2 and all(blob in meant for blob in kept)
                return None if same else "another state than was written, and no word"
            finally:
                found.close()

        for case in range(number):
            for part in Path(folder).glob("phase.sqlite*"):
                part.unlink()
            path.write_bytes(mutated(whole.read_bytes(), random.Random(f"{seed} {case}")))
            wrong += attempt(f"state {case}", look)
    return wrong


def replies(number: int, seed: int) -> list[str]:
    """Hostile replies and uploads: only their sender is left out."""
    wrong, draw = [], random.Random(seed)
    list(battery.run_test("tent", "fedavg"))  # torch loads its optimizers at their first use, which is no hang
    for case in range(number):
        how = draw.choice(list(liars.SHAPES))
        phase = draw.choice([name for name in PHASES if name not in ("finetune", "local")])
        adapter, aggregator = draw.choice(("bn-adapt", "tent", "em")), draw.choice(("fedavg", "tsa", "krum", "fedavgm"))

        def train(how: str = how, phase: str = phase) -> str | None:
            executor = liars.Tampered(lambda reply: reply._replace(update=liars.SHAPES[how](reply.update)))
            outcome = battery.run_phase(phase, rounds=1, cohort="all", executor=executor)
            left_out = {client for _, client, name, _ in outcome.checkpoint.metrics() if name == "left_out"}
            return None if left_out <= {liars.LIAR} and trees.finite(outcome.server) else f"left out: {left_out}"

        def test(how: str = how, adapter: str = adapter, aggregator: str = aggregator) -> str | None:
            executor = liars.Tampered(lambda upload: upload._replace(params=liars.SHAPES[how](upload.params)))
            commits = battery.run_test(adapter, aggregator, executor=executor)
            told = {
                s.client for c in commits for s in c.scores if "left_out" in s.values and "bytes_up" not in s.values
            }
            return None if told == {executor.victim()} else f"set aside: {told}"

        wrong += attempt(f"reply {case}, {phase}, {how}", train)
        wrong += attempt(f"upload {case}, {aggregator}+{adapter}, {how}", test)
    return wrong


def kills(number: int, seed: int) -> list[str]:
    """Killed (every third time: asked to end) at any moment, a run ends in the results of one that was not."""
    wrong, draw, done = [], random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = _folder(folder, "undisturbed")
        test_kill.start(undisturbed, workers=1).communicate()
        meant = test_kill.results(undisturbed)
        while done < number:
            killed = _folder(folder, f"killed-{done}")
            ended = False
            while not ended and done < number:
                further = _progress(killed) + draw.randint(0, 60)
                process = test_kill.start(killed, workers=1 + done % 2)
                test_kill.wait(process, lambda: _progress(killed) >= further)  # noqa: B023  (called before they change)
                time.sleep(draw.uniform(0, 0.5))
                ended = process.poll() is not None
                if not ended:
                    wrong += _stop(process, done)
                    done += 1
                process.stderr.close()
            process = test_kill.start(killed, workers=1)
            told = process.communicate()[1].decode()
            if process.returncode or test_kill.results(killed) != meant:
                wrong.append(f"kill {done}: other results than undisturbed, exit {process.returncode}: {told[-300:]}")
    return wrong


def _progress(folder: Path) -> int:
    """Rounds and slots that are done; a whole run has about 600."""
    tested = "SELECT count(*) FROM row WHERE phase = 'test' AND metric = 'correct'"
    rounds = sum(test_kill.rounds(folder, training) for training in (True, False))
    return rounds + int(test_kill.read(folder / "runs" / "store.sqlite", tested))


def _folder(parent: str, name: str) -> Path:
    made = Path(parent) / name
    made.mkdir()
    (made / "killed.yaml").write_text(test_kill.EXPERIMENT)
    return made


def _stop(process: test_kill.subprocess.Popen[bytes], number: int) -> list[str]:
    if number % 3:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return []
    process.terminate()
    try:
        code = process.wait(patience())
    except test_kill.subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return [f"kill {number}: SIGTERM did not end it within {LONGEST} s"]
    return [] if code in (143, -signal.SIGTERM, 0) else [f"kill {number}: SIGTERM ended it with {code}"]


PARTS: dict[str, tuple[Callable[[int, int], list[str]], int]] = {
    "mutated experiment files and overrides": (experiments, 1000),
    "damaged packs": (packs, 80),
    "damaged states": (states, 60),
    "hostile replies, and as many uploads": (replies, 100),
    "kills, every third by SIGTERM": (kills, 100),
}


def write(rows: dict[str, str]) -> None:
    """Put the figures of some parts on the page; those of others stay."""
    page, (begin, end) = DOCS.read_text(encoding="utf-8"), ("<!-- figures: make chaos -->", "<!-- end of figures -->")
    head, table, rest = page.split(begin)[0], page.split(begin)[1].split(end)[0], page.split(end)[1]
    before = {name: line for line in table.splitlines() for name in PARTS if line.startswith(f"| {name} |")}
    known = [{**before, **rows}[name] for name in PARTS if name in {**before, **rows}]
    lines = ["| what | how many | went wrong | took |", "|---|---|---|---|", *known]
    DOCS.write_text(f"{head}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{rest}", encoding="utf-8")


def main() -> None:
    """All parts, or some of them; figures go to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="a word of a part's name")
    parser.add_argument("--share", type=float, default=1.0, help="of each part's number")
    asked = parser.parse_args()
    rows, all_wrong = {}, []
    for name, (part, most) in PARTS.items():
        if asked.only and not any(word in name for word in asked.only):
            continue
        number, begin = max(1, round(most * asked.share)), time.monotonic()
        wrong = part(number, asked.seed)
        rows[name] = f"| {name} | {number} | {len(wrong)} | {time.monotonic() - begin:.0f} s |"
        all_wrong += wrong
        print(rows[name], *wrong, sep="\n", flush=True)
    if asked.share == 1.0:
        write(rows)
    sys.exit(bool(all_wrong))


if __name__ == "__main__":
    main()
