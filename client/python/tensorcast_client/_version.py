"""The client's version, alone in a file so that a build can read it without importing gRPC."""

VERSION = "0.1.0"
