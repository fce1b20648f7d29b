"""Takes out of a text what names the machine or the person that made it: paths, the host, the user.

What is left of a path is where it lies in torch, or its last part.
"""

from __future__ import annotations

import getpass
import platform
import re
from pathlib import Path

# An absolute path of two parts or more; not the tail of a relative one, nor of a link.
_PATH = re.compile(r"(?<![\w.:/~-])(?:~|/[\w.+@-]+)(?:/[\w.+@-]+)+/?")
_PACKAGE = re.compile(r".*(?:site-packages|dist-packages|lib/python\d\.\d+)/(.+)")
# Names that belong to no one, or that are words of their own.
_COMMON = {"root", "user", "ubuntu", "runner", "localhost", "torch", "python"}


def scrub(text: str) -> str:
    text = _PATH.sub(_short, text)
    for name, instead in ((platform.node(), "HOST"), (_user(), "USER"), (Path.home().name, "USER")):
        if len(name) > 1 and name.lower() not in _COMMON:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", instead, text)
    return text


def _short(found: re.Match[str]) -> str:
    path = found[0]
    inside = _PACKAGE.fullmatch(path)
    return inside[1] if inside else path.rstrip("/").rpartition("/")[2]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
