"""``make mutants``: do the tests notice small faults?

Draws mutants of ``tests.mutation.mutate``, writes one at a time into a copy of the project, and
runs the tests that run its lines. Results are kept in ``build/mutation``: a campaign that is broken
off goes on where it was, and one with other tests tries again what survived.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import queue
import re
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.mutation import recorded
from tests.mutation.mutate import Mutant, mutants
from tests.mutation.trees import BUILD, ROOT, Tree

RESULTS = BUILD / "results.jsonl"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
"""Mutants that compute the same, each with the reason."""
FACTOR, LEAST = 4.0, 60.0
"""How many times as long as recorded tests may take, and what they may take at least."""
KILLED = {1: "killed", 2: "killed", 3: "killed", 4: "killed", -9: "timed out"}
"""What the exit codes of pytest mean: failed, interrupted by a failing import, and so on."""


def drawn(count: int, seed: int) -> tuple[list[Mutant], list[Mutant]]:
    """So many mutants of all rooms, and those left out as equivalent.

    What is drawn depends on each mutant's own text alone, not on what was added elsewhere.
    """
    sources = [path for room in recorded.ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    found = {
        one.name: one
        for path in sources
        for one in mutants(str(path.relative_to(ROOT)), path.read_text())
    }
    order = sorted(found, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    chosen = [found[name] for name in order[:count]]
    same = set(_equivalents(found.values()))
    left_out = [one for one in chosen if one.name in same]
    return [one for one in chosen if one.name not in same], left_out


def _equivalents(found: Any) -> list[str]:
    """The names of the mutants that the list says are equivalent; each of its lines is of one."""
    named: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        key = (one.file, _words(one.before), _words(one.after))
        named.setdefault(key, []).append(one.name)
    names: list[str] = []
    for entry in tomllib.loads(EQUIVALENT.read_text()).get("mutant", []):
        key = (entry["file"], _words(entry["before"]), _words(entry["after"]))
        if not entry["reason"] or key not in named:
            raise SystemExit(f"{EQUIVALENT.name}: no such mutant, or no reason: {key}")
        names += named[key]
    return names


def _words(text: str) -> str:
    return " ".join(text.split())


class Campaign:
    """Workers that share a list of things to do, and what came of them."""

    def __init__(self, jobs: int, seconds: float, unchanged: bool) -> None:
        self.trees = [Tree(number) for number in range(jobs)]
        self.seconds, self.unchanged = seconds, unchanged
        self.lock = threading.Lock()
        self.tests = hashlib.sha256(
            b"".join((ROOT / name).read_bytes() for name in recorded.files())
        ).hexdigest()[:12]

    def each(self, todo: Sequence[Any], do: Callable[[Tree, Any], None]) -> None:
        """Do it for every one of them, in each tree one at a time; the first error is raised."""
        waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for one in todo:
            waiting.put(one)
        errors: list[BaseException] = []

        def work(tree: Tree) -> None:
            try:
                while not errors:
                    do(tree, waiting.get_nowait())
            except queue.Empty:
                return
            except BaseException as error:  # noqa: BLE001 raised below, in the main thread
                errors.append(error)

        threads = [threading.Thread(target=work, args=(tree,)) for tree in self.trees]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def known(self) -> dict[str, dict[str, Any]]:
        """Results so far: of survivors only those of these tests."""
        lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
        found = {one["name"]: one for one in map(json.loads, lines)}
        return {
            name: one
            for name, one in found.items()
            if one["state"] != "survived" or one["tests"] == [self.tests, self.seconds]
        }

    def try_one(self, known: recorded.Recorded, tree: Tree, mutant: Mutant) -> None:
        """Run a mutant's tests, and write down what came of it."""
        tests = known.tests_of(mutant.file, mutant.lines, self.seconds)
        bound = LEAST + FACTOR * sum(known.seconds.get(one, self.seconds) for one in tests)
        replaced = None if self.unchanged else {mutant.file: mutant.text}
        arguments = ["-x", "-m", "not slow and not shipped", *tests]
        code = tree.test(arguments, bound, replaced=replaced)
        result = {
            "name": mutant.name,
            "state": KILLED.get(code, "survived"),
            "by": _failing(tree.output.read_text(errors="replace")),
            "ran": len(tests),
            "diff": mutant.difference(),
            "tests": [self.tests, self.seconds],
        }
        with self.lock:
            if not self.unchanged:
                with RESULTS.open("a") as file:
                    file.write(json.dumps(result) + "\n")
            print(result["state"], f"{mutant.file}:{mutant.lines.start}", result["by"], flush=True)

    def close(self) -> None:
        """End the workers."""
        for tree in self.trees:
            tree.close()


def _failing(output: str) -> str:
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return found[-1] if found else ""


def summary(chosen: list[Mutant], left_out: list[Mutant], known: dict[str, Any]) -> str:
    """How many were noticed, and those that were not."""
    results = [known[one.name] for one in chosen if one.name in known]
    counts = Counter(one["state"] for one in results)
    killed = counts["killed"] + counts["timed out"]
    survivors = [one for one in results if one["state"] == "survived"]
    return "\n".join(
        [
            *(f"\nsurvived {one['ran']} tests: {one['diff']}" for one in survivors),
            f"\n{len(results)} of {len(chosen)} mutants tried: {killed} killed, of these"
            f" {counts['timed out']} by time; {len(survivors)} survived;"
            f" {len(left_out)} equivalent, not tried",
        ]
    )


def main() -> None:
    """Record what is not yet recorded, try what is not yet tried, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=45.0, help="of tests for one mutant")
    parser.add_argument("--unchanged", action="store_true", help="no faults: none may be killed")
    parser.add_argument("--summary", action="store_true", help="of what has been tried")
    options = parser.parse_args()
    chosen, left_out = drawn(options.mutants, options.seed)
    campaign = Campaign(0 if options.summary else options.jobs, options.seconds, options.unchanged)
    try:
        if not options.summary:
            campaign.each(recorded.files(), recorded.record)
            tests = recorded.Recorded()
            known = {} if options.unchanged else campaign.known()
            todo = [one for one in chosen if one.name not in known]
            campaign.each(todo, lambda tree, one: campaign.try_one(tests, tree, one))
    finally:
        campaign.close()
    print(summary(chosen, left_out, campaign.known()))


if __name__ == "__main__":
    main()
