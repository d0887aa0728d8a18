"""What of a reference may be shown in messages and logs, as the daemon shows it: no user and password, no query, no fragment, also
of texts that are no good reference."""
import re

_PARTS = re.compile(r"[\s/\\]*([A-Za-z][A-Za-z0-9+.-]*:)?([\s/\\]*)(.*)", re.S)
_END = re.compile(r"[?#]|%3f|%23", re.I)
_PLAIN = re.compile(r"(\[[^\]%]*\]|[^:%]*)(:\d*)?")


def shown(reference: str) -> str:
    if reference.startswith(("disk:", "memory:")):
        return reference
    scheme, slashes, rest = _PARTS.fullmatch(reference).groups("")
    if scheme and not slashes and rest[:1].isdigit():  # "proxy:3128"
        scheme, rest = "", scheme + rest
    authority = re.match(r"[^/?#]*", rest)[0]
    is_revision = scheme == "hf:" and ":" not in authority and not authority.startswith("hf_")  # "hf://gpt2@main"
    user = -1 if is_revision else authority.rfind("@")
    if user < 0 and not _PLAIN.fullmatch(authority):  # "u:pa/ss@host"
        user = rest.rfind("@")
    if user >= 0:
        rest = rest[user + 1:]
        scheme = scheme if slashes else ""
    authority = re.match(r"[^/?#]*", rest)[0]
    if not (is_revision and user < 0) and not _PLAIN.fullmatch(authority):
        rest = "..." + rest[len(authority):]
    path = re.sub(r"(//[\s/\\]*)[^/?#]*@", r"\1", rest)  # a URL within the URL
    end = _END.search(path)
    if end:
        path = path[:end.start()] + ("#..." if end[0] == "#" else "?...")
    return reference[:len(reference) - len(reference.lstrip(" \t\r\n/\\"))] + scheme + slashes + path
