"""What is written in one turn of the loop is sent at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from opweld.serve.transport import Gathering


class Sent(asyncio.Transport):
    """What a transport is given, and what is done to it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.did: list[str | list[bytes]] = []
        self.closing = False

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.did.append([bytes(one) for one in list_of_data])

    def get_write_buffer_size(self) -> int:
        self.did.append("asked")
        return 7

    def close(self) -> None:
        self.did.append("closed")

    def abort(self) -> None:
        self.did.append("aborted")

    def is_closing(self) -> bool:
        return self.closing


def test_head_and_body_are_one() -> None:
    async def scenario() -> None:
        sent = Sent()
        gathering = Gathering(sent)
        gathering.write(b"head")
        gathering.write(b"body")
        assert not sent.did
        await asyncio.sleep(0)
        gathering.writelines([b"head", b"body"])
        await asyncio.sleep(0)
        assert sent.did == [[b"head", b"body"], [b"head", b"body"]]

    asyncio.run(scenario())


def test_who_asks_what_is_left_has_it_sent_before() -> None:
    async def scenario() -> None:
        sent = Sent()
        gathering = Gathering(sent)
        gathering.write(b"answer")
        assert gathering.get_write_buffer_size() == 7
        gathering.write(b"last")
        gathering.close()
        await asyncio.sleep(0)
        assert sent.did == [[b"answer"], "asked", [b"last"], "closed"]

    asyncio.run(scenario())


def test_much_is_sent_before_the_turn_ends() -> None:
    """Whoever writes without end would fill the memory, where nothing tells him to wait."""

    async def scenario() -> None:
        sent = Sent()
        gathering = Gathering(sent)
        for _ in range(100):
            gathering.write(bytes(1 << 12))
        assert sum(len(one) for written in sent.did for one in written) > 300_000

    asyncio.run(scenario())


def test_nothing_is_sent_to_who_is_gone() -> None:
    async def scenario() -> None:
        sent = Sent()
        gathering = Gathering(sent)
        gathering.write(b"answer")
        gathering.abort()
        gathering.write(b"more")
        sent.closing = True
        await asyncio.sleep(0)
        assert sent.did == ["aborted"]

    asyncio.run(scenario())
