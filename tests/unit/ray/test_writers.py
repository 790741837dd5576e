"""What a pool of writers does about actors that die or do not start, with a cluster that is none."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opweld.errors import RunError

pytest.importorskip("pyarrow")

from opweld.ray import writers
from opweld.ray.packages import exceptions
from opweld.ray.parts import Part, Piece
from opweld.ray.writers import ATTEMPTS, Writers

ROWS = 3


class Actor:
    """A process of the cluster; `number` counts them from 0."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.number, self.alive = number, True
        self.ready = SimpleNamespace(remote=lambda: Task(self, lambda: cluster.start(self)))
        self.write = SimpleNamespace(remote=lambda *_: Task(self, lambda: cluster.write(self)))


class Task:
    """It runs when somebody asks for its result."""

    def __init__(self, actor: Actor, run: Callable[[], int]) -> None:
        self.actor, self.run = actor, run


class Cluster:
    """As much of Ray as writers call: everything ends at once, first what began last."""

    def __init__(self, start: Callable[[Actor], int], write: Callable[[Actor], int]) -> None:
        self.start, self.write = start, write
        self.actors: list[Actor] = []

    def remote(self, **_: Any) -> Callable[[type], Any]:
        return lambda _: SimpleNamespace(remote=self._create)

    def get(self, task: Task) -> int:
        if not task.actor.alive:
            raise exceptions.ActorDiedError
        return task.run()

    def wait(self, tasks: Sequence[Task], num_returns: int, timeout: float) -> tuple[list[Task], list[Task]]:
        return [tasks[-1]], list(tasks[:-1])

    def kill(self, actor: Actor) -> None:
        actor.alive = False

    def available_resources(self) -> dict[str, float]:
        return {}

    def _create(self, *_: Any) -> Actor:
        assert len(self.actors) < 20, "one actor after the other is started"
        self.actors.append(Actor(self, len(self.actors)))
        return self.actors[-1]


class Parts:
    """The next one is there when nothing else is awaited, so that all actors are idle then."""

    def __init__(self, count: int) -> None:
        self.left = [Part(number, (Piece(None, 0, ROWS),)) for number in range(count)]

    @property
    def ended(self) -> bool:
        return not self.left

    def take(self, seconds: float) -> Part | None:
        return self.left.pop(0) if seconds and self.left else None


def right(actor: Actor) -> int:
    return ROWS


def dead(actor: Actor) -> int:
    raise exceptions.ActorDiedError


def unable(cause: Exception) -> Callable[[Actor], int]:
    """What Ray tells of an actor whose construction raises."""

    def start(actor: Actor) -> int:
        task = exceptions.RayTaskError("Writer.__init__", "", cause, proctitle="ray", pid=1, ip="10.0.0.1")
        raise exceptions.ActorDiedError(task)

    return start


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Cluster, Iterator[int]]]:
    """The cluster, and the numbers of the parts as they are written."""

    def made(
        count: int, parts: int, start: Callable[[Actor], int] = right, write: Callable[[Actor], int] = right
    ) -> tuple[Cluster, Iterator[int]]:
        cluster = Cluster(start, write)
        monkeypatch.setattr(writers, "ray", cluster)
        pool = Writers(count, 1)
        return cluster, (part.number for part, _ in pool.written(cast(Any, Parts(parts)), lambda _: True))

    return made


Pool = Callable[..., tuple[Cluster, Iterator[int]]]


def test_what_the_start_of_an_actor_raises_ends_the_job(pool: Pool) -> None:
    _, written = pool(2, 1, start=unable(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left on device"):
        next(written)


def test_actors_that_all_die_as_they_start_end_the_job(pool: Pool) -> None:
    cluster, written = pool(2, 1, start=dead)
    with pytest.raises(RunError, match=f"no actor starts: {ATTEMPTS} in a row died"):
        next(written)
    assert len(cluster.actors) == 2 + ATTEMPTS - 1


def test_actors_that_die_as_they_start_beside_one_that_lives_end_nothing(pool: Pool) -> None:
    _, written = pool(ATTEMPTS + 1, 3, start=lambda actor: right(actor) if actor.number == 0 else dead(actor))
    assert list(written) == [0, 1, 2]


def test_idle_actors_that_died_with_their_node_are_no_deaths_on_a_part(pool: Pool) -> None:
    cluster, written = pool(ATTEMPTS + 2, 2)
    first = next(written)
    for actor in cluster.actors[:-1]:
        actor.alive = False
    assert [first, *written] == [0, 1]
    assert len(cluster.actors) == ATTEMPTS + 2


def test_a_part_on_which_actors_die_ends_the_job(pool: Pool) -> None:
    cluster, written = pool(2, 1, write=dead)
    with pytest.raises(RunError, match=f"{ATTEMPTS} actors died while they wrote part-00000000.parquet"):
        next(written)
    assert len(cluster.actors) == ATTEMPTS


def test_a_block_that_is_lost_kills_no_actor(pool: Pool) -> None:
    def lost(actor: Actor) -> int:
        raise exceptions.ObjectLostError("ab", None, "")

    cluster, written = pool(1, 1, write=lost)
    with pytest.raises(exceptions.ObjectLostError):
        next(written)
    assert [actor.alive for actor in cluster.actors] == [True]
