"""Reports of the models that a server has."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from opweld.serve.refusal import Refusal

_MOST = 8
"""Reports that are kept, of a megabyte or two each."""


class Reports:
    """The HTML of `opweld report`, by tokens that cannot be guessed.

    A browser that follows a link sends no key, and a key does not belong in an address: who has one gets the token of a
    report. It is made in a process of its own, as it takes seconds of Python that would keep the server from answering,
    and without running the model, which is busy here."""

    def __init__(self, elsewhere: Callable[[str], Awaitable[bytes | None]] | None = None) -> None:
        """elsewhere: what other processes of the server have under a token; None: there are none."""
        self._elsewhere = elsewhere
        self._made: OrderedDict[str, bytes] = OrderedDict()
        self._tokens: dict[tuple[Path, int], str] = {}
        self._making = asyncio.Lock()

    async def token(self, artifact: Path) -> str:
        """Of the report of an artifact, which is made now if it was not, one at a time.

        Raises Refusal of status 422 where the artifact cannot give one."""
        async with self._making:
            made = artifact, _changed(artifact)
            token = self._tokens.get(made)
            if token is None or token not in self._made:
                text = await _report(artifact)
                token = self._tokens[made] = secrets.token_urlsafe(24)
                self._made[token] = text
                while len(self._made) > _MOST:
                    self._forget(next(iter(self._made)))
            self._made.move_to_end(token)
            return token

    async def get(self, token: str) -> bytes:
        """The report of a token. Raises Refusal of status 404 where there is none, or none any more."""
        made = self.here(token)
        if made is None and self._elsewhere is not None:
            made = await self._elsewhere(token)
        if made is None:
            raise Refusal(404, "there is no such report any more; ask for it again on the server's page")
        return made

    def here(self, token: str) -> bytes | None:
        """The report of a token that this process has made; None where it has not."""
        return self._made.get(token)

    def _forget(self, token: str) -> None:
        del self._made[token]
        self._tokens = {made: known for made, known in self._tokens.items() if known != token}


def _changed(artifact: Path) -> int:
    try:
        return (artifact / "manifest.json").stat().st_mtime_ns
    except OSError:
        return 0


async def _report(artifact: Path) -> bytes:
    with TemporaryDirectory(prefix="opweld-report-") as folder:
        output = Path(folder) / "report.html"
        # Run beside the artifact: the report shows the path that it is given, which is nobody's business.
        command = ["-m", "opweld", "report", "--quiet", f"./{artifact.name}", "-o", str(output), "--no-run"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            cwd=artifact.parent,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            lines = said.decode(errors="replace").strip().splitlines() or ["it ended without a word"]
            raise Refusal(422, f"no report: {lines[-1].removeprefix('opweld: ')}")
        return output.read_bytes()
