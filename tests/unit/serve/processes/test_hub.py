"""What workers are asked together, in one process."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from opweld.errors import InputError
from opweld.serve.processes import hub as module
from opweld.serve.processes.hub import Ends, Hub
from opweld.serve.processes.member import Member
from opweld.serve.processes.part import Part
from opweld.serve.refusal import Refusal
from opweld.serve.server import reserve
from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import eventually


class Workers:
    """A hub that a thread waits for, and workers of it on one event loop.

    Attributes:
        log: what workers did, in order, with their numbers.
        begun: whether all were ready.
    """

    def __init__(self, hub: Hub, count: int) -> None:
        self.hub, self.count = hub, count
        self.begun = False
        self.log: list[tuple[int, str, str]] = []
        self.members: dict[int, Member] = {}
        self.failing: dict[int, Exception] = {}
        self.held: dict[int, asyncio.Event] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def _wait(self) -> None:
        while not self._stopped.wait(0.001):
            with self._lock:
                for key, events in self.hub.selector.select(0):
                    key.data(events)
                self.hub.act()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE_S)
        self.hub.close()

    def start(self, number: int) -> Member:
        """A worker that has loaded nothing yet."""
        with self._lock:
            ends = self.hub.open()
            kept = Ends(ends.hub_talk, ends.talk.dup(), ends.given, ends.taken.dup())
            self.hub.forked(number, ends)
        member = self.members[number] = Member(Part(number, self.count), kept.talk, kept.taken, self.hub.closed)

        async def change(given: Mapping[str, Any]) -> None:
            if number in self.held:
                await self.held[number].wait()
            if number in self.failing:
                raise self.failing[number]
            self.log.append((number, given["do"], given["name"]))

        async def name(_: Mapping[str, Any]) -> str:
            await asyncio.sleep(0)
            return f"I am {number}"

        async def counts(_: Mapping[str, Any]) -> dict[str, Any]:
            if number in self.held:
                await self.held[number].wait()
            samples = [["f_total", {}, 10 + number], ["f_total", {"model": "m"}, 1]]
            return {"families": {"f": ["counter", "", samples], "g": ["gauge", "", [["g", {}, 1]]]}}

        member.on("change", change)
        member.on("name", name)
        member.on("counts", counts)
        return member

    def die(self, number: int) -> None:
        """Its process ends."""
        with self._lock:
            self.hub.died(number)
        self.members.pop(number).close()

    def close(self) -> None:
        """All processes end."""
        for number in [*self.members]:
            self.die(number)

    async def change(self, asker: int, do: str, name: str = "a", *, kind: str = "model", keeps: bool = False) -> None:
        await self.members[asker].change(kind, name, "change", {"do": do, "name": name}, keeps=keeps)

    def did(self, number: int) -> list[str]:
        return [f"{do} {name}".strip() for one, do, name in self.log if one == number]


@contextmanager
def working(count: int = 2) -> Generator[Workers]:
    listening = reserve("127.0.0.1", 0)
    workers: list[Workers] = []

    def begun() -> None:
        workers[0].begun = True

    workers.append(Workers(Hub(listening, count, begun), count))
    try:
        yield workers[0]
    finally:
        workers[0].stop()
        listening.close()


def check(test: Callable[[Workers], Coroutine[Any, Any, None]], count: int = 2) -> None:
    """Runs a test whose workers have all joined."""

    async def run() -> None:
        with working(count) as workers:
            for number in range(count):
                workers.start(number)
            await asyncio.gather(*(member.join() for member in workers.members.values()))
            await test(workers)
            workers.close()

    asyncio.run(run())


async def soon(holds: Callable[[], Any]) -> None:
    await asyncio.to_thread(eventually, holds)


def test_nobody_begins_before_all_are_loaded() -> None:
    async def run() -> None:
        with working(2) as workers:
            first, second = workers.start(0), workers.start(1)
            joining = asyncio.create_task(first.join())
            await soon(lambda: workers.hub._peers[0].loaded)
            assert not joining.done()
            await asyncio.gather(joining, second.join())
            first.serve(socket.socket.close)
            await soon(workers.hub.serves)
            address = workers.hub._handing._listening.getsockname()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            assert not workers.begun and not workers.hub.has_begun
            second.serve(socket.socket.close)
            await soon(lambda: workers.begun)
            socket.create_connection(address).close()
            assert workers.hub.has_begun
            workers.close()

    asyncio.run(run())


def test_a_question_is_answered_by_all() -> None:
    async def test(workers: Workers) -> None:
        assert sorted(await workers.members[1].ask("name")) == ["I am 0", "I am 1"]
        assert await workers.members[1].ask("what nobody knows") == []

    check(test)


def test_counts_of_who_died_or_says_nothing_are_those_it_told_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def totals(answers: list[Any]) -> list[float]:
        told = module.added(answers)["families"]
        return [told["f"][2][0][2], told["g"][2][0][2], told["opweld_worker_ends"][2][0][2]]

    async def test(workers: Workers) -> None:
        first = workers.members[0]
        assert totals(await first.ask("counts")) == [21, 2, 0]
        workers.held[1] = asyncio.Event()
        monkeypatch.setattr(module, "PATIENCE_S", 0.01)
        assert totals(await first.ask("counts")) == [21, 2, 0]
        monkeypatch.setattr(module, "PATIENCE_S", PATIENCE_S)
        asked = asyncio.create_task(first.ask("counts"))
        await soon(lambda: workers.hub._questions)
        workers.die(1)
        assert totals(await asked) == [21, 1, 1]
        del workers.held[1]
        await workers.start(1).join()
        # One that is started again counts on top of what the one before it had counted.
        assert totals(await first.ask("counts")) == [32, 2, 1]
        await workers.change(0, "load", "m")
        told = {
            tuple(labels): value for _, labels, value in module.added(await first.ask("counts"))["families"]["f"][2]
        }
        assert told == {(): 32, ("model",): 2}

    check(test)


def test_a_change_is_done_by_all_and_by_who_is_asked_first() -> None:
    async def test(workers: Workers) -> None:
        await workers.change(1, "load")
        assert workers.log[0] == (1, "load", "a") and sorted(workers.log) == [(n, "load", "a") for n in range(3)]

    check(test, 3)


def test_changes_of_a_name_have_one_order_and_others_do_not_wait() -> None:
    async def test(workers: Workers) -> None:
        workers.held[0] = asyncio.Event()
        asked = [asyncio.create_task(workers.change(0, "load"))]
        await soon(lambda: workers.hub._asked)
        asked += [asyncio.create_task(workers.change(1, f"change {n}")) for n in range(20)]
        other = asyncio.create_task(workers.change(1, "load", "b"))
        await soon(lambda: "load b" in workers.did(1))
        assert workers.did(1) == ["load b"]
        workers.held.pop(0).set()
        await asyncio.gather(*asked, other)
        expected = ["load a", *(f"change {n} a" for n in range(20))]
        for number in (0, 1):
            assert [one for one in workers.did(number) if one != "load b"] == expected

    check(test)


def test_where_the_one_who_is_asked_cannot_nothing_has_changed() -> None:
    async def test(workers: Workers) -> None:
        workers.failing[0] = InputError("it is damaged")
        with pytest.raises(Refusal, match=r"^it is damaged$") as raised:
            await workers.change(0, "load")
        assert raised.value.status == 400 and not workers.log
        workers.failing[0] = Refusal(404, "there is none", code="none", param="p", retry_after=3)
        with pytest.raises(Refusal, match=r"^there is none$") as raised:
            await workers.change(0, "load")
        error = raised.value
        assert (error.status, error.code, error.param, error.retry_after) == (404, "none", "p", 3)
        workers.failing[0] = ValueError("a secret")
        with pytest.raises(Refusal, match="Its log says more"):
            await workers.change(0, "load")
        workers.failing.clear()
        workers.failing[1] = InputError("there is no memory")
        with pytest.raises(Refusal, match=r"^done, but not by process 2 of 2: there is no memory$"):
            await workers.change(0, "load")
        assert workers.log == [(0, "load", "a")]

    check(test)


@pytest.mark.parametrize("dies", [0, 1])
def test_who_dies_meanwhile_holds_nobody_up(dies: int) -> None:
    async def test(workers: Workers) -> None:
        workers.held[dies] = asyncio.Event()
        asked = asyncio.create_task(workers.change(0, "load"))
        await soon(lambda: any(workers.hub._peers[dies] in one.waiting for one in workers.hub._asked.values()))
        later = asyncio.create_task(workers.change(1 - dies, "unload"))
        await asyncio.sleep(0.05)
        workers.die(dies)
        await later
        assert workers.did(1 - dies) == ["load a", "unload a"] if dies else ["unload a"]
        if dies:
            await asked
        else:
            asked.cancel()

    check(test)


def test_who_is_started_later_does_what_the_others_did() -> None:
    async def test(workers: Workers) -> None:
        await workers.change(0, "unload", keeps=True)
        await workers.change(0, "unload", "b", keeps=True)
        await workers.change(0, "load", "b")
        for name in "xyz":
            await workers.change(0, "register", name, kind="region", keeps=True)
        await workers.change(0, "unregister", "y", kind="region")
        workers.die(1)
        workers.log.clear()
        late = workers.start(1)
        # What is done while it loads, it may have seen or not: it does it again.
        await workers.change(0, "load", "c")
        await late.join()
        assert workers.did(1) == ["unload a", "register x", "register z", "load c"]
        await workers.change(0, "unregister", "", kind="region")
        workers.die(1)
        workers.log.clear()
        workers.failing[1] = Refusal(404, "there is no such model")  # and is told in the log
        await workers.start(1).join()
        assert not workers.log
        workers.failing.clear()
        await workers.change(1, "load", "d")
        assert workers.did(1) == workers.did(0) == ["load d"]

    check(test)


def test_who_leaves_takes_what_was_handed_to_it() -> None:
    async def test(workers: Workers) -> None:
        first = workers.members[0]
        address = workers.hub._handing._listening.getsockname()
        taken: list[socket.socket] = []
        first.serve(taken.append)
        await soon(lambda: workers.begun)
        clients = [socket.create_connection(address) for _ in range(5)]
        await soon(lambda: workers.hub._peers[0].taker.given == 5)
        await first.leave()
        assert len(taken) == 5 and not workers.hub.serves()
        for connection in (*taken, *clients):
            connection.close()

    check(test, 1)
