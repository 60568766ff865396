"""What runs inside tool server processes.

Everything here imports the standard library and the server's own SDK only, so that it also runs under another
interpreter than the client's (a server with pins of its own), and little stands between a fork and the first call.
"""
