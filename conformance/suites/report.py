"""Counts what passed, failed and was skipped, and holds it against the list of expected failures.

Each suite ends with the line `N passed, N failed, N skipped`. An expected failure counts as skipped;
one that passes is a failure, and so is a suite that ran nothing.
"""

import time
import traceback
from dataclasses import dataclass
from pathlib import Path

SUITES = Path(__file__).parent
EXPECTED = SUITES.parent / "expected"


class Skip(Exception):
    """A scenario can't run here; only allowed when the expected file names it as a skip."""


@dataclass
class Expectation:
    """One line of an expected file: `name | fail or skip | reason | section of the standard`."""

    name: str
    result: str
    reason: str
    section: str


def expectations(suite: str) -> dict[str, Expectation]:
    """Reads the expected file of a suite; a malformed line is an error, a missing file is empty."""
    path = EXPECTED / f"{suite}.txt"
    found = {}
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 4 or not all(fields) or fields[1] not in ("fail", "skip"):
            raise SystemExit(f"{path.name}:{number}: not `name | fail or skip | reason | section`")
        if fields[0] in found:
            raise SystemExit(f"{path.name}:{number}: {fields[0]} is listed twice")
        found[fields[0]] = Expectation(*fields)
    return found


@dataclass
class Outcome:
    name: str
    result: str
    seconds: float
    note: str


class Report:
    """The outcomes of one suite."""

    def __init__(self, suite: str):
        self.suite = suite
        self.expected = expectations(suite)
        self.outcomes: list[Outcome] = []

    def run(self, name: str, scenario) -> Outcome:
        """Runs a scenario; whatever it raises is its failure."""
        started = time.monotonic()
        try:
            scenario()
            result, note = "passed", ""
        except Skip as skip:
            result, note = "skipped", str(skip)
        except Exception as error:
            result, note = "failed", f"{place(error)} {type(error).__name__}: {error}"
        return self.add(name, result, time.monotonic() - started, note)

    def add(self, name: str, result: str, seconds: float = 0.0, note: str = "") -> Outcome:
        """Takes an outcome, judged by the expected file, and prints it."""
        entry = self.expected.get(name)
        if entry is None:
            if result == "skipped":
                result, note = "failed", f"skipped without being listed: {note}"
        elif result == "passed":
            result, note = "failed", f"listed as expected to {entry.result}, but passed"
        elif result == "failed" and entry.result == "fail":
            result, note = "skipped", f"expected: {entry.reason}: {note}"
        elif result == "skipped" and entry.result == "fail":
            result, note = "failed", "listed as expected to fail, but was skipped"
        outcome = Outcome(name, result, seconds, note)
        self.outcomes.append(outcome)
        tail = f": {note}" if note and result != "passed" else ""
        print(f"{result:8}{seconds:7.1f} s  {name}{tail}", flush=True)
        return outcome

    def finish(self, whole: bool = True) -> int:
        """Prints the closing line; returns the exit status.

        `whole` says that every listed name should have come up: a listed name that ran nowhere fails.
        """
        seen = {outcome.name for outcome in self.outcomes}
        if whole:
            for name in sorted(set(self.expected) - seen):
                self.outcomes.append(Outcome(name, "failed", 0.0, ""))
                print(f"failed            {name}: listed as expected, but no such test ran")
        if not self.outcomes:
            print(f"{self.suite}: no test ran")
            closing_line(0, 1, 0)
            return 1
        count = {result: 0 for result in ("passed", "failed", "skipped")}
        for outcome in self.outcomes:
            count[outcome.result] += 1
        closing_line(**count)
        return 1 if count["failed"] or not count["passed"] else 0


def place(error: Exception) -> str:
    """The last line of a suite that the error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(SUITES)]
    return f"({Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else ""


def closing_line(passed: int, failed: int, skipped: int) -> None:
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
