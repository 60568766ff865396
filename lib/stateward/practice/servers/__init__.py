"""The practice businesses as tool servers; each also runs alone (``python -m stateward.practice.servers.orders``)."""
