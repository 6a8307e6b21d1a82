"""python -m s3_clients [--short] [--server NAME] [--only TEXT]"""

import argparse
import sys

import server
from report import Report
from s3_clients.run import Run
from s3_clients.table import TRANSPORTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run s3-clients")
    parser.add_argument("--short", action="store_true", help="smaller tree, fewer rivals")
    parser.add_argument("--server", choices=server.SERVERS, default="portico", help="a peer, to try the suite")
    parser.add_argument("--only", default="", help="run only cells whose name contains this")
    options = parser.parse_args()
    report = Report("s3-clients")
    with server.SERVERS[options.server]() as running:
        Run(report, running.directory, options.short, options.only).against(running.endpoints())
    transports = {endpoint.transport for endpoint in running.endpoints()}
    return report.finish(whole=not options.only and transports == set(TRANSPORTS))


sys.exit(main())
