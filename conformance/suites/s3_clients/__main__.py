"""python -m s3_clients [--short] [--server NAME] [--only TEXT]"""

import argparse
import sys

import server
from report import Report
from s3_clients.context import Context
from s3_clients.table import TABLE, TRANSPORTS, render


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run s3-clients")
    parser.add_argument("--short", action="store_true", help="smaller tree, fewer rivals")
    parser.add_argument("--server", choices=server.SERVERS, default="portico", help="a peer, to try the suite")
    parser.add_argument("--only", default="", help="run only cells whose name contains this")
    options = parser.parse_args()
    report, outcomes = Report("s3-clients"), {}
    with server.SERVERS[options.server]() as running:
        for client in TABLE:
            client.install()
        for endpoint in running.endpoints():
            for client, scenarios in TABLE.items():
                context = Context(running.directory, endpoint, client.name, options.short)
                driver = client(context)
                for scenario in scenarios:
                    cell = (client.name, endpoint.transport, scenario)
                    name = " ".join(cell)
                    if options.only in name:
                        method = getattr(driver, scenario.replace(" ", "_"))
                        outcomes[cell] = report.run(name, method)
                context.clean()
    print(render(outcomes))
    transports = {endpoint.transport for endpoint in running.endpoints()}
    return report.finish(whole=not options.only and transports == set(TRANSPORTS))


sys.exit(main())
