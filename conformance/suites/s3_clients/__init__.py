"""Real clients against one server, each over plain HTTP and over TLS with a verified certificate.

`table.py` says who does what; a client is one module whose methods are the scenarios. What a client
wrote is always listed and read back by another one (boto3), so that two wrongs of one client don't
make a right.
"""
