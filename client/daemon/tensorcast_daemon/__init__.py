"""tensorcastd and the command tensorcast, as they are in this package: both functions become the program."""
import os
import sys

# Debian's is what the libraries of this package were built to look at; these are the others'.
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                 "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem")


def _become(name):
    found = [path for path in _CERTIFICATES if os.path.exists(path)]
    if found and found[0] != _CERTIFICATES[0]:
        os.environ.setdefault("SSL_CERT_FILE", found[0])
    os.environ.setdefault("TENSORCAST_PYTHON", sys.executable)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    os.execv(program, [name, *sys.argv[1:]])


def tensorcastd():
    _become("tensorcastd")


def tensorcast():
    _become("tensorcast")
