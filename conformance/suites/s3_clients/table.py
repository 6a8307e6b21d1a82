"""The table of client x transport x scenario: the source of the run and the form of its report."""

from s3_clients.aws import Aws1, Aws2
from s3_clients.boto import Boto
from s3_clients.rclone import Rclone
from s3_clients.restic import Restic

TRANSPORTS = ["http", "https"]

TABLE = {
    Boto: ["tree", "keys", "multipart", "presigned", "bare", "post form", "tagging", "race",
           "race complete", "swap"],
    Aws1: ["tree", "multipart", "presigned", "tagging", "race"],
    Aws2: ["tree", "multipart", "presigned", "tagging", "race"],
    Rclone: ["tree", "multipart", "presigned", "sync"],
    Restic: ["backup"],
}

SCENARIOS = list(dict.fromkeys(scenario for row in TABLE.values() for scenario in row))


def render(outcomes: dict) -> str:
    """The report: one row for each client and transport; `-` is what the client can't do at all."""
    width = max(map(len, SCENARIOS)) + 2
    lines = [f"{'client':10}{'over':7}" + "".join(f"{scenario:>{width}}" for scenario in SCENARIOS)]
    for client in TABLE:
        for transport in TRANSPORTS:
            cells = []
            for scenario in SCENARIOS:
                outcome = outcomes.get((client.name, transport, scenario))
                text = "-" if outcome is None else f"{outcome.seconds:.1f} s"
                if outcome is not None and outcome.result != "passed":
                    text = outcome.result
                cells.append(f"{text:>{width}}")
            lines.append(f"{client.name:10}{transport:7}" + "".join(cells))
    return "\n".join(lines)
