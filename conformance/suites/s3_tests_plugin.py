"""Lets pytest run the named tests only and write one JSON record for each test it ran."""

import json
import os

RESULTS = os.environ["S3TESTS_RESULTS"]
NAMES = set(os.environ["S3TESTS_NAMES"].split())
WITHOUT = set(os.environ["S3TESTS_WITHOUT"].split())
ONLY = os.environ["S3TESTS_ONLY"]
records = {}


def pytest_collection_modifyitems(config, items):
    wanted = [
        item for item in items
        if (not NAMES or item.name in NAMES) and item.name not in WITHOUT and ONLY in item.name
    ]
    kept = {id(item) for item in wanted}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    for item in wanted:
        declared = [str(line).split(":")[0].strip() for line in config.getini("markers")]
        markers = sorted({mark.name for mark in item.iter_markers()} & set(declared))
        item.user_properties.append(("markers", markers))
    items[:] = wanted


def pytest_runtest_logreport(report):
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    record = records.setdefault(report.nodeid, {
        "name": report.nodeid.split("::")[-1], "markers": dict(report.user_properties).get("markers", []),
        "result": "passed", "seconds": 0.0, "message": "",
    })
    record["seconds"] += report.duration
    if report.outcome != "passed" and record["result"] != "failed":
        record["result"] = report.outcome
        record["message"] = f"{report.when}: {message(report)}"
    if report.when == "teardown":
        # At once, so that a run cut short keeps what it has seen.
        write([records.pop(report.nodeid)])


def pytest_sessionfinish(session):
    """A test whose worker died has no teardown."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        write(records.values())


def write(finished):
    with open(RESULTS, "a") as file:
        file.writelines(json.dumps(record) + "\n" for record in finished)


def message(report) -> str:
    """The first line of what went wrong."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return text.strip().splitlines()[0][:300] if text.strip() else "no message"
