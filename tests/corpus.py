#!/usr/bin/env python3
"""The inputs that fuzzing has found worth keeping: fuzz/corpus/TARGET.txt, one a line, in base64.

    tests/corpus.py unpack TARGET FOLDER    writes each to a file of its own, as libFuzzer reads them
    tests/corpus.py pack TARGET FOLDER      keeps what is in the folder, and nothing else
"""

import base64
import hashlib
import pathlib
import sys

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "fuzz" / "corpus"


def main():
    try:
        action, target, folder = sys.argv[1:]
        act = {"unpack": unpack, "pack": pack}[action]
    except (KeyError, ValueError):
        sys.exit(__doc__)
    act(CORPUS / f"{target}.txt", pathlib.Path(folder))


def unpack(kept, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for line in kept.read_text().split() if kept.exists() else []:
        content = base64.b64decode(line, validate=True)
        (folder / hashlib.sha1(content).hexdigest()).write_bytes(content)


def pack(kept, folder):
    # In an order that a new one changes in its own line alone.
    contents = (path.read_bytes() for path in folder.iterdir() if path.is_file())
    lines = sorted({base64.b64encode(content).decode() for content in contents if content})
    kept.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
