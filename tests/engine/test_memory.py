import subprocess
import sys

STEPS = """
import resource
import torch
from acclimate.engine.memory import keep_freed_memory
kept = keep_freed_memory() if {keep} else None
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    several = [torch.ones(2**20) for _ in range(8)]  # 4 MB each, all freed at the end
step(), step()
before = faults()
for _ in range(20):
    step()
print(kept, faults() - before)
"""


def faults(keep: bool) -> tuple[str, int]:
    done = subprocess.run([sys.executable, "-c", STEPS.format(keep=keep)], capture_output=True, text=True, check=True)
    kept, number = done.stdout.split()
    return kept, int(number)


def test_memory_that_was_freed_is_not_asked_for_again():
    """Twenty steps of 32 MB are 160,000 pages; kept, they come from the system no more (where the allocator can)."""
    kept, number = faults(keep=True)
    assert kept == "False" or number < 20_000
    assert number <= faults(keep=False)[1]
