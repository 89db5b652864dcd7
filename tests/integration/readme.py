#!/usr/bin/python3
"""The README shows files of the tree as they are: readme.py [--update]"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- begin (\S+) -->\n```\w*\n)(.*?)(```\n<!-- end -->)", re.S)


def main():
    readme = ROOT / "README.md"
    text = readme.read_text()
    names = [match[2] for match in BLOCK.finditer(text)]
    if not names:
        sys.exit("README.md shows no file")
    true = BLOCK.sub(lambda m: m[1] + (ROOT / m[2]).read_text() + m[4], text)
    if sys.argv[1:] == ["--update"]:
        readme.write_text(true)
    elif true != text:
        sys.exit(f"README.md shows another text than {', '.join(names)}: run {sys.argv[0]} --update")
    # Commands and paths that the README names are there.
    for path in re.findall(r"`((?:tests|client|systemd|config)/[\w./-]+)`", text):
        if not (ROOT / path).exists():
            sys.exit(f"README.md names {path}, which is not there")


if __name__ == "__main__":
    main()
