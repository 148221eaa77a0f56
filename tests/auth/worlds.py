"""A world whose clock stands still until it is moved."""

from esker.world import RealWorld


class StoppedWorld(RealWorld):
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s
