"""Check the links to other sites on all pages: `make docs-links`. It needs the network, so no test runs it.

Exit status: 0 all answer, 1 some do not.
"""

import concurrent.futures
import sys
import urllib.error
import urllib.request

from tests.support import pages

SECONDS = 20
_REFUSED = {401, 403, 405, 429}
"""Statuses of sites that are there and do not answer a program."""


def problem(address: str) -> str:
    """Return why an address does not answer; empty where it does."""
    request = urllib.request.Request(address, headers={"User-Agent": "mhc-fuzz docs-links"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return "" if error.code in _REFUSED else str(error.code)
    except OSError as error:
        return str(error)


def main() -> int:
    """Print each address that does not answer, with the pages that link to it, and return the exit status."""
    where: dict[str, list[str]] = {}
    for page in pages.ALL:
        for link in pages.links(page):
            if link.startswith(("http://", "https://")):
                where.setdefault(link.partition("#")[0], []).append(pages.name_of(page))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        problems = dict(zip(where, pool.map(problem, where), strict=True))
    bad = {address: what for address, what in problems.items() if what}
    for address, what in bad.items():
        sys.stdout.write(f"{address}: {what} ({', '.join(sorted(set(where[address])))})\n")
    sys.stdout.write(f"{len(where)} addresses, {len(bad)} do not answer\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
