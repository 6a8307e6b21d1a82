"""Runs the table."""

from dataclasses import dataclass
from pathlib import Path

from report import Report
from s3_clients.context import Context
from s3_clients.table import TABLE, render
from server import Endpoint


@dataclass
class Run:
    """The scenarios of all clients, as far as their names contain `only`; `title` goes in front."""

    report: Report
    directory: Path
    short: bool
    only: str = ""
    title: str = ""

    def against(self, endpoints: list[Endpoint], reading: list[Endpoint] | None = None) -> None:
        """Writes through `endpoints`; lists and reads back through the one of `reading` in its place."""
        outcomes = {}
        for client in TABLE:
            client.install()
        for endpoint, other in zip(endpoints, reading or endpoints, strict=True):
            for client, scenarios in TABLE.items():
                context = Context(self.directory, endpoint, client.name, self.short, other)
                driver = client(context)
                for scenario in scenarios:
                    cell = (client.name, endpoint.transport, scenario)
                    name = self.title + " ".join(cell)
                    if self.only in name:
                        method = getattr(driver, scenario.replace(" ", "_"))
                        outcomes[cell] = self.report.run(name, method)
                context.clean()
        print(render(outcomes))
