"""What people write for an artifact, as the reference that the daemon takes.

A path (os.PathLike, or a text that begins with "/", "./", "../" or "~/", or is ".", ".." or "~", or of a file or folder that
is there) and a URL file:///PATH or
file://localhost/PATH, percent-decoded, mean "disk:" with an absolute path. Anything else stays as it is, unless it is plainly
meant to be something else: "gcs://", a page of the hub. Then the message says what. The C library has the same rule
(daemon/base/reference.c, which says how paths are cleaned); both are tested against tests/golden/references.txt.
"""
from __future__ import annotations

import os
import re

from . import errors
from .redact import shown

_SCHEMES = ("disk", "gs", "s3", "hf", "https", "http", "file")
_ALIASES = {"gcs": "gs", "s3a": "s3", "s3n": "s3", "huggingface": "hf", "hub": "hf", "hf-hub": "hf"}
_PATH = re.compile(r"/|\.\.?(/|$)|~(/|$)")
_URL_WITHOUT_SCHEME = re.compile(r"//+[^/]*@")
_FILE_URL = re.compile(r"file:(?://(?P<host>[^/]*))?(?P<path>.*)", re.I | re.S)
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
_NAME = r"[A-Za-z0-9._-]+"
_HUB_PAGE = re.compile(rf"(?:https?://)?(?:(?:www\.)?huggingface\.co|hf\.co)/(?P<name>{_NAME}(?:/{_NAME})?)(?P<rest>.*)", re.I | re.S)
_HUB_REVISION = re.compile(r"/(?P<kind>tree|resolve|blob|raw)/(?P<revision>(?:refs/pr/)?[^/?#]+)(?P<folder>[^?#]*)")
_NO_MODELS = {"api", "datasets", "docs", "spaces"}  # no repository of a model is below them
_WHAT = "an artifact is a path that begins with /, ./ or ~/, or in a store such as gs://"


def parse(reference: str | os.PathLike[str], folder: str | None = None, home: str | None = None) -> str:
    """folder, home: in place of the working folder and the home directory of this process."""
    if isinstance(reference, os.PathLike):
        path = os.fsdecode(os.fspath(reference))
        return _of_path(path, path if _PATH.match(path) and path[:1] != "~" else f"./{path}", folder, home)
    if not isinstance(reference, str):
        raise errors.invalid(f"{reference!r} is no artifact: {_WHAT}", "BAD_REFERENCE")
    try:
        reference.encode()
    except UnicodeEncodeError:
        raise _refusal(reference, "it is not UTF-8, which references are") from None
    if _URL_WITHOUT_SCHEME.match(reference):  # shown as a path it would tell the password
        raise _refusal(reference, "a URL begins with its scheme, such as https://")
    if _PATH.match(reference):
        return _of_path(reference, reference, folder, home)
    if url := _FILE_URL.fullmatch(reference):
        return _of_file_url(reference, url)
    scheme, colon, rest = reference.partition(":")
    is_bare = not colon or not scheme or "/" in scheme
    if is_bare and reference and _is_there(reference, folder):
        return _of_path(reference, f"./{reference}", folder, home)
    if better := _hub_reference(reference):
        raise _suggestion(reference, "that is a page of the hub", better)
    if is_bare:
        raise _bare(reference)
    if nearest := _nearest_scheme(scheme):
        if nearest not in ("disk", "file"):
            rest = "//" + rest.lstrip("/")
        elif nearest == "disk" and rest.startswith("/"):
            rest = "/" + rest.lstrip("/")
        raise _suggestion(reference, "there is no such kind of source", f"{nearest}:{rest}")
    return reference


def _is_there(path, folder):
    """Whether a bare relative path is a file or a folder here, as the shell completes them."""
    try:
        return os.path.exists(os.path.join(folder or os.getcwd(), path))
    except (OSError, ValueError):  # or it has a NUL
        return False


def _refusal(reference, complaint):
    return errors.invalid(f"{shown(reference)}: {complaint}".encode("utf-8", "backslashreplace").decode(), "BAD_REFERENCE")


def _suggestion(reference, why, better):
    return _refusal(reference, f"{why}; did you mean {shown(better)}?")


def _of_path(reference, path, folder, home):
    is_home = path.startswith("~")
    if is_home:
        start = home if home is not None else os.path.expanduser("~")
    else:
        start = "" if path.startswith("/") else folder if folder is not None else os.getcwd()
    if start[:1] not in ("", "/") or (not start and not path.startswith("/")):
        raise _refusal(reference, "there is no home directory (HOME); write an absolute path" if is_home else "the path has to be absolute")
    made = [part for part in start.split("/") if part not in ("", ".")]
    is_plain = not is_home  # nothing that may be a link stands before
    for part in path[is_home:].split("/"):
        if part == ".." and is_plain:
            del made[-1:]
        elif part not in ("", "."):
            is_plain = False
            made.append(part)
    whole = "disk:/" + "/".join(made)
    try:
        whole.encode()
    except UnicodeEncodeError:
        raise _refusal(reference, "the path is not UTF-8, which references are") from None
    if "\0" in whole:
        raise _refusal(reference, "a path has no NUL")
    return whole


def _of_file_url(reference, url):
    if (url["host"] or "localhost").lower() != "localhost":
        raise _refusal(reference, "a file: URL with a host means another machine; write file:///PATH")
    if not url["path"].startswith("/"):
        raise _refusal(reference, "a file: URL has an absolute path: file:///PATH")
    if _BAD_PERCENT.search(url["path"]):
        raise _refusal(reference, "in a file: URL % is followed by two hexadecimal digits that are not 00")
    decoded = re.sub(rb"%(..)", lambda match: bytes([int(match[1], 16)]), url["path"].encode("utf-8", "surrogateescape"))
    return _of_path(reference, decoded.decode("utf-8", "surrogateescape"), "", "")


def _hub_reference(reference):
    """"hf://OWNER/NAME@REV" for a page of the hub, None for what is none."""
    page = _HUB_PAGE.fullmatch(reference)
    if not page or page["name"].partition("/")[0] in _NO_MODELS:
        return None
    found = _HUB_REVISION.match(page["rest"])
    if not found:
        return f"hf://{page['name']}"
    return f"hf://{page['name']}@{found['revision']}" + (found["folder"].rstrip("/") if found["kind"] == "tree" else "")


def _nearest_scheme(scheme):
    """None: it is one of ours, or nothing is near; then the daemon, which may know more, has the word."""
    if scheme in _SCHEMES:
        return None
    word = scheme.lower()
    if word in _ALIASES:
        return _ALIASES[word]
    distance, nearest = min(((_distance(word, known), known) for known in _SCHEMES), key=lambda pair: pair[0])
    return nearest if distance < len(word) // 3 + 2 and len(word) < 32 else None  # a third of the letters and one more may differ


def _distance(a, b):
    """How many letters have to be added, dropped, replaced or swapped with the next."""
    above, row = [], list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above2, above, row = above, row, [i]
        for k, y in enumerate(b, 1):
            swapped = above2[k - 2] + 1 if i > 1 and k > 1 and (x, a[i - 2]) == (b[k - 2], y) else k + i
            row.append(min(above[k] + 1, row[k - 1] + 1, above[k - 1] + (x != y), swapped))
    return row[-1]


def _bare(reference):
    if not reference:
        return _refusal("an empty reference", _WHAT)
    is_name = re.fullmatch(f"{_NAME}/{_NAME}", reference) and len(reference) <= 50
    return _suggestion(reference, _WHAT, f"./{reference}" + (f", or hf://{reference} of the hub" if is_name else ""))
