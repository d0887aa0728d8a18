"""A private certificate authority and a server certificate for loopback names, made by openssl."""
import ssl
import subprocess
from pathlib import Path


def _openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


# of RSA each key takes a sixth of a second to make
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make(folder, names="DNS:localhost,DNS:*.localhost,DNS:*.s3.localhost,IP:127.0.0.1,IP:::1", days=30):
    """Writes ca.pem, server.pem (good for so many days) and server.key into `folder` and returns the path of ca.pem."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ca, key, request, extensions = (folder / name for name in ("ca.pem", "ca.key", "server.csr", "extensions"))
    _openssl("req", "-x509", *_NEW_KEY, "-days", 30, "-subj", "/CN=fake CA", "-keyout", key, "-out", ca,
             "-addext", "basicConstraints=critical,CA:true", "-addext", "keyUsage=keyCertSign,cRLSign")
    _openssl("req", *_NEW_KEY, "-subj", "/CN=fake", "-keyout", folder / "server.key", "-out", request)
    extensions.write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth\n")
    _openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", key, "-CAcreateserial", "-days", days, "-extfile", extensions,
             "-out", folder / "server.pem")
    return ca


def context(folder):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(Path(folder) / "server.pem", Path(folder) / "server.key")
    return made


def service_account(folder, email, token_uri):
    """A key file as Google gives them; returns (the tree for the file, the public modulus)."""
    path = Path(folder) / "account.key"
    _openssl("genrsa", "-out", path, "2048")
    shown = subprocess.run(["openssl", "rsa", "-in", path, "-noout", "-modulus"], check=True, capture_output=True, text=True)
    private = subprocess.run(["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", path], check=True, capture_output=True, text=True)
    tree = {"type": "service_account", "project_id": "fake-project", "private_key_id": "fakekeyid", "private_key": private.stdout,
            "client_email": email, "client_id": "1", "token_uri": token_uri}
    return tree, int(shown.stdout.strip().removeprefix("Modulus="), 16)
