"""Who goes next: greenlets that give up the turn at every store call, under virtual time.

One seed decides everything. Three ways to choose, drawn per schedule, because they find different bugs: at random; at
random but mostly staying with who runs (long undisturbed stretches); and by priorities that change a few times (what
needs one client to stall at one place, and all others to pass it, is found by few such changes).
"""

import heapq
import random
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, NoReturn

from greenlet import getcurrent, greenlet

STEP_S: Final = 0.001
"""Virtual time passes at every turn, so that a stall is felt by who measures how long it took."""

STEPS_MAX: Final = 20_000
"""A schedule has some hundred: one that goes on so long hangs."""

_FAIR_AFTER: Final = 3_000
"""From here on everybody gets a turn: only a real hang goes on."""


class Crash(BaseException):
    """The client's process dies here. No code of it may run on, so nothing may catch this but the client's own loop."""


class Violation(BaseException):
    """An oracle saw what must not be. Passes through all code that catches errors."""

    def __init__(self, oracle: str, message: str) -> None:
        super().__init__(f"{oracle}: {message}")
        self.oracle = oracle
        self.message = message


class Choice(Enum):
    RANDOM = "random"
    STICKY = "sticky"
    PRIORITIES = "priorities"


class Script(NamedTuple):
    """What happened once, to be followed again as far as it can be: of a smaller plan, too."""

    turns: list[str]
    """Who was next, each time."""
    fates: dict[object, object]
    """Which calls failed, and how; and who stood still."""


class Task:
    """A client, or a request on its way: something that wants a turn."""

    __slots__ = (
        "busy",
        "calls",
        "client",
        "greenlet",
        "killed",
        "number",
        "op",
        "priority",
        "server",
        "skips",
        "unwinding",
        "wakes_s",
    )

    def __init__(self, client: str, server: int, run: Callable[[], None], priority: float, hub: greenlet) -> None:
        self.client = client
        self.server = server
        self.greenlet = greenlet(run, hub)
        self.priority = priority
        self.wakes_s = 0.0
        self.op: object = None
        """What it is working on, for oracles and traces."""
        self.busy = False
        """Whether it is within an operation, and so can be killed in it."""
        self.killed = False
        self.unwinding = False
        self.number = 0
        """Of the operation, among its client's."""
        self.calls = 0
        """Of the store, within the operation."""
        self.skips = False
        """Whether its next turn is one that it just had."""


class Scheduler:
    """Runs tasks one at a time, each until its next turn."""

    def __init__(self, seed: int, script: Script | None = None) -> None:
        self.script = script
        self.happened = Script([], {})
        self.random = random.Random(seed)
        draw = self.random.random
        self._draw = draw
        self._at = 0
        self.steps = 0
        self.now_s = 0.0
        self.moment = 0
        """Orders what happens: every begin, end and effect has its own."""
        self.over = False
        self.quiet = False
        """While an oracle looks: nobody else gets a turn, nothing fails, no time passes."""
        self.failure: Violation | None = None
        self.trace: list[tuple[int, str, str]] | None = None
        self._ready: list[Task] = []
        self._sleeping: list[tuple[float, int, Task]] = []
        self._hub = getcurrent()
        self._spawned = 0
        self.choice = (Choice.RANDOM, Choice.STICKY, Choice.PRIORITIES)[int(draw() * 3)]
        self._stay = 0.5 + 0.45 * draw()
        self._change_each = 10 + draw() * 60
        self.current: Task | None = None

    def tick(self) -> int:
        self.moment += 1
        return self.moment

    def note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append((self.steps, self.current.client if self.current else "-", text))

    def spawn(self, client: str, server: int, run: Callable[[], None], op: object = None) -> Task:
        def guarded() -> None:
            try:
                run()
            except Violation as violation:
                self.failure = self.failure or violation
                self.over = True
            except Crash:
                pass
            finally:
                if task in self._ready:
                    self._ready.remove(task)

        task = Task(client, server, guarded, self._draw(), self._hub)
        task.op = op
        self._ready.append(task)
        self._spawned += 1
        return task

    def run(self) -> None:
        """Until nobody wants a turn any more, or an oracle has seen enough."""
        self._hub = getcurrent()
        while not self.over and (self._ready or self._sleeping):
            task = self._next()
            self.current = task
            task.greenlet.switch()
        self.current = None
        if self.failure is not None:
            self._ready.clear()
            self._sleeping.clear()
            raise self.failure

    def turn(self) -> None:
        """Let others go first. Called by the running task, at every store call."""
        if self.quiet:
            return
        me = self.current
        assert me is not None
        if me.unwinding or self.over:
            raise Crash
        if me.skips:
            me.skips = False
            return
        self.steps += 1
        self.now_s += STEP_S
        if self.steps > STEPS_MAX:
            self.fail("hang", f"no end after {STEPS_MAX} steps: {me.client} is still at {me.op}")
        self._yield(me)

    def sleep(self, seconds: float) -> None:
        """The running task wants no turn for a while."""
        if self.quiet:
            return
        me = self.current
        assert me is not None
        if me.unwinding or self.over:
            raise Crash
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.fail("hang", f"no end after {STEPS_MAX} steps: {me.client} is still at {me.op}")
        self._ready.remove(me)
        me.skips = False
        me.wakes_s = self.now_s + seconds
        self._spawned += 1
        heapq.heappush(self._sleeping, (me.wakes_s, self._spawned, me))
        self._yield(me)

    def kill(self, server: int) -> None:
        """The process dies: what its clients were doing ends there. The caller raises Crash itself if it is one."""
        for task in [*self._ready, *(task for _, _, task in self._sleeping)]:
            if task.server == server and task.busy and task is not self.current:
                task.killed = True

    def fail(self, oracle: str, message: str) -> NoReturn:
        self.over = True
        self.failure = self.failure or Violation(oracle, message)
        raise self.failure

    def _yield(self, me: Task) -> None:
        following = self._next()
        if following is not me:
            self.current = following
            following.greenlet.switch()
            self.current = me
            if self.over:
                raise Crash
        if me.killed:
            me.killed = False
            me.unwinding = True
            raise Crash

    def _next(self) -> Task:
        task = self._chosen() if self.script is None else self._scripted(self.script.turns)
        self.happened.turns.append(task.client)
        return task

    def _scripted(self, turns: list[str]) -> Task:
        """Whom the script names next, if it can be; where the script ends, whoever is first."""
        self._wake()
        while self._at < len(turns):
            name = turns[self._at]
            self._at += 1
            for task in self._ready:
                if task.client == name:
                    return task
        return self._ready[0]

    def _wake(self) -> None:
        sleeping = self._sleeping
        while sleeping and (sleeping[0][0] <= self.now_s or not self._ready):
            wakes_s, _, task = heapq.heappop(sleeping)
            self.now_s = max(self.now_s, wakes_s)
            self._ready.append(task)

    def _chosen(self) -> Task:
        ready = self._ready
        if self._sleeping:
            self._wake()
        n = len(ready)
        if n == 1:
            return ready[0]
        if self.choice is Choice.RANDOM or self.steps > _FAIR_AFTER:
            return ready[int(self._draw() * n)]
        if self.choice is Choice.STICKY:
            me = self.current
            if self._draw() < self._stay and me in ready:
                assert me is not None
                return me
            return ready[int(self._draw() * n)]
        if self._draw() * self._change_each < 1.0:
            ready[int(self._draw() * n)].priority = self._draw() - 0.5
        best = ready[0]
        for task in ready:
            if task.priority > best.priority:
                best = task
        return best


class SimWorld:
    """Time and identity as one server sees them: its clocks differ from all others'."""

    def __init__(self, scheduler: Scheduler, server: int) -> None:
        self._scheduler = scheduler
        self._skew_s = server * 1_000.0

    def now_ms(self) -> int:
        return int(1_700_000_000_000 + (self._scheduler.now_s - self._skew_s / 100) * 1000)

    def monotonic_s(self) -> float:
        return self._scheduler.now_s + self._skew_s

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)

    def token(self, n_bytes: int) -> str:
        return f"{self._scheduler.tick():0{2 * n_bytes}x}"

    def chance(self) -> float:
        return self._scheduler.random.random()

    def event(self) -> "SimEvent":
        return SimEvent(self._scheduler)


class SimEvent:
    """Waiting for it lets the others have their turns."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        end_s = None if timeout is None else self._scheduler.now_s + timeout
        while not self._is_set and (end_s is None or self._scheduler.now_s < end_s):
            self._scheduler.sleep(STEP_S)
        return self._is_set
