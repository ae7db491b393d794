"""Multi-lane traffic with IDM car following, MOBIL lane changes and a moving bottleneck.

Car following after Treiber, Hennecke and Helbing (2000), lane changes after Kesting, Treiber and
Helbing (2007). The parameters give congested flow like that of the US-101 data. numpy only, one
array element a vehicle; a vehicle's position x is that of its front.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

STEP = 0.1
ENTRY, EXIT = -500.0, 1500.0
LANES = 5
WARM_UP_SECONDS = 600.0
RECORD_EVERY = 2
MAX_SPEED = 45.0
DEMAND_PER_SECOND = 9000 / 3600 / LANES
MIN_HEADWAY = 0.9
CAP_FROM, CAP_TO = 900.0, 1200.0
CAPS = ((8.0, 20.0), (6.0, 20.0), (4.0, 19.0))
CAP_PERIOD_SECONDS, CAP_TAU, CAP_FLOOR = 110.0, 40.0, 2.0
NOISE_TAU, NOISE_STDDEV, NOISE_MIN_SPEED = 3.0, 0.2, 0.5
LOWEST_ACCELERATION, HIGHEST_ACCELERATION = -8.0, 3.0
CHANGE_EVERY, CHANGE_SHARE = 5, 0.35
POLITENESS, THRESHOLD, SAFE_BRAKING = 0.2, 0.3, 3.0
COOL_DOWN_SECONDS, CHANGE_GAP = 6.0, 2.0
LANE_OFFSET = 1e5  # metres between lanes in the sort key; far more than the road is long


@dataclass(frozen=True, kw_only=True)
class Tracks:
    """Recorded vehicles, one row a vehicle and frame, sorted by frame.

    Attributes:
        frame: Frame number, 0 at the start of the recording, 0.2 s apart.
        vehicle: Vehicle number, unique in the recording.
        x: Position of the front (m), within the recorded segment.
        speed: Speed (m/s).
        lane: 1 (left) to 5.
        frames: How many frames were recorded, empty ones included.
    """

    frame: np.ndarray
    vehicle: np.ndarray
    x: np.ndarray
    speed: np.ndarray
    lane: np.ndarray
    frames: int


@dataclass
class _Fleet:
    """All vehicles on the road, sorted by (lane, x); every field has one element a vehicle."""

    vehicle: np.ndarray
    x: np.ndarray
    speed: np.ndarray
    lane: np.ndarray
    length: np.ndarray
    desired: np.ndarray
    headway: np.ndarray
    jam_gap: np.ndarray
    accel: np.ndarray
    braking: np.ndarray
    noise: np.ndarray
    rested: np.ndarray

    def pick(self, index: np.ndarray) -> _Fleet:
        """The vehicles at `index`, in that order."""
        return replace(self, **{name: values[index] for name, values in vars(self).items()})

    def joined(self, other: _Fleet) -> _Fleet:
        """Both fleets, sorted again."""
        mine, theirs = vars(self), vars(other)
        return replace(
            self, **{name: np.concatenate([mine[name], theirs[name]]) for name in mine}
        ).sorted()

    def sorted(self) -> _Fleet:
        """The same vehicles, sorted by (lane, x)."""
        return self.pick(np.argsort(self.lane * LANE_OFFSET + self.x, kind="stable"))


def _drivers(count: int, first: int, rng: np.random.Generator) -> _Fleet:
    """`count` new vehicles with drawn drivers, numbered from `first`, placed nowhere yet."""
    kind = rng.random(count)
    length = np.where(
        kind < 0.025,
        rng.normal(12, 1.5, count),
        np.where(kind < 0.032, 2.2, rng.normal(4.6, 0.4, count)),
    )

    def normal(mean: float, stddev: float, lower: float, upper: float) -> np.ndarray:
        return np.clip(rng.normal(mean, stddev, count), lower, upper)

    return _Fleet(
        vehicle=np.arange(first, first + count),
        x=np.full(count, ENTRY),
        speed=np.zeros(count),
        lane=np.zeros(count, dtype=np.int64),
        length=np.maximum(length, 2.0),
        desired=normal(26, 3, 18, 34),
        headway=normal(1.25, 0.25, 0.7, 2.2),
        jam_gap=rng.uniform(1.5, 3, count),
        accel=normal(1.3, 0.15, 0.6, 1.8),
        braking=normal(2.0, 0.2, 1.4, 2.8),
        noise=rng.normal(0, NOISE_STDDEV, count),
        rested=np.zeros(count),
    )


def _idm(
    fleet: _Fleet,
    index: np.ndarray | slice,
    desired: np.ndarray,
    gap: np.ndarray,
    closing: np.ndarray,
) -> np.ndarray:
    """IDM acceleration (m/s^2) of the vehicles at `index` with the given gap (m) to a leader."""
    speed, accel = fleet.speed[index], fleet.accel[index]
    wanted = fleet.jam_gap[index] + np.maximum(
        0.0,
        speed * fleet.headway[index]
        + speed * closing / (2 * np.sqrt(accel * fleet.braking[index])),
    )
    free = (speed / desired[index]) ** 4
    value = accel * (1 - free - (wanted / np.maximum(gap, 0.1)) ** 2)
    bounded: np.ndarray = np.clip(value, LOWEST_ACCELERATION, HIGHEST_ACCELERATION)
    return bounded


def _leaders(fleet: _Fleet) -> tuple[np.ndarray, np.ndarray]:
    """Gap to the leader in the lane (m, huge where there is none) and closing speed (m/s)."""
    gap = np.full(len(fleet.x), 1e6)
    closing = np.zeros(len(fleet.x))
    if len(fleet.x) > 1:
        follows = fleet.lane[1:] == fleet.lane[:-1]
        gap[:-1] = np.where(follows, fleet.x[1:] - fleet.length[1:] - fleet.x[:-1], 1e6)
        closing[:-1] = np.where(follows, fleet.speed[:-1] - fleet.speed[1:], 0.0)
    return gap, closing


def _toward(
    fleet: _Fleet, mover: np.ndarray, lane: np.ndarray, now: np.ndarray, desired: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """MOBIL incentive (m/s^2, -inf where unsafe) of moving to `lane`, and the slot it takes.

    The slot is the index of the first vehicle ahead in the target lane, in the sorted fleet.
    """
    count = len(fleet.x)
    key = fleet.lane * LANE_OFFSET + fleet.x
    slot = np.searchsorted(key, lane * LANE_OFFSET + fleet.x[mover])
    ahead, behind = np.minimum(slot, count - 1), np.maximum(slot - 1, 0)
    has_ahead = (slot < count) & (fleet.lane[ahead] == lane)
    has_behind = (slot > 0) & (fleet.lane[behind] == lane)
    gap_ahead = np.where(has_ahead, fleet.x[ahead] - fleet.length[ahead] - fleet.x[mover], 1e6)
    gap_behind = np.where(has_behind, fleet.x[mover] - fleet.length[mover] - fleet.x[behind], 1e6)
    closing = np.where(has_ahead, fleet.speed[mover] - fleet.speed[ahead], 0.0)
    own = _idm(fleet, mover, desired, gap_ahead, closing)
    closing_behind = np.where(has_behind, fleet.speed[behind] - fleet.speed[mover], 0.0)
    follower = _idm(fleet, behind, desired, gap_behind, closing_behind)
    loss = np.where(has_behind, follower - now[behind], 0.0)
    # The old follower inherits the mover's leader.
    old = np.maximum(mover - 1, 0)
    has_old = (mover > 0) & (fleet.lane[old] == fleet.lane[mover])
    leader = np.minimum(mover + 1, count - 1)
    has_leader = (mover < count - 1) & (fleet.lane[leader] == fleet.lane[mover])
    gap_old = np.where(has_leader, fleet.x[leader] - fleet.length[leader] - fleet.x[old], 1e6)
    closing_old = np.where(has_leader, fleet.speed[old] - fleet.speed[leader], 0.0)
    relief = np.where(has_old, _idm(fleet, old, desired, gap_old, closing_old) - now[old], 0.0)
    incentive = own - now[mover] + POLITENESS * (loss + relief)
    safe = (gap_ahead >= CHANGE_GAP) & (gap_behind >= CHANGE_GAP)
    safe &= ~has_behind | (follower >= -SAFE_BRAKING)
    safe &= (lane >= 1) & (lane <= LANES)
    return np.where(safe, incentive, -np.inf), slot


def _change_lanes(
    fleet: _Fleet, now: np.ndarray, desired: np.ndarray, clock: float, rng: np.random.Generator
) -> _Fleet:
    """Let the drivers who consider it change lanes; at most one of them enters each gap."""
    considers = (rng.random(len(fleet.x)) < CHANGE_SHARE) & (fleet.rested <= clock)
    mover = np.flatnonzero(considers)
    if not len(mover):
        return fleet
    own = fleet.lane[mover]
    left, left_slot = _toward(fleet, mover, own - 1, now, desired)
    right, right_slot = _toward(fleet, mover, own + 1, now, desired)
    best = np.maximum(left, right)
    slot = np.where(left >= right, left_slot, right_slot)
    lane = np.where(left >= right, own - 1, own + 1)
    go = np.flatnonzero(best > THRESHOLD)
    if not len(go):
        return fleet
    go = go[np.argsort(-best[go], kind="stable")]
    _, first = np.unique(np.stack([lane[go], slot[go]]), axis=1, return_index=True)
    go = go[first]
    lanes, rested = fleet.lane.copy(), fleet.rested.copy()
    lanes[mover[go]] = lane[go]
    rested[mover[go]] = clock + COOL_DOWN_SECONDS
    return replace(fleet, lane=lanes, rested=rested).sorted()


@dataclass
class _Inflow:
    """Vehicles waiting to enter, by lane."""

    waiting: _Fleet
    due: np.ndarray

    @classmethod
    def drawn(cls, seconds: float, rng: np.random.Generator) -> _Inflow:
        """Arrivals of all lanes over `seconds`, in the order of their due times."""
        mean = 1 / DEMAND_PER_SECOND
        count = int(seconds / mean * 1.2) + 50
        headways = MIN_HEADWAY + rng.exponential(mean - MIN_HEADWAY, (LANES, count))
        due = headways.cumsum(axis=1)
        waiting = _drivers(LANES * count, 0, rng)
        lane = np.repeat(np.arange(1, LANES + 1), count)
        return cls(waiting=replace(waiting, lane=lane), due=due)

    def enter(self, fleet: _Fleet, clock: float, following: np.ndarray) -> _Fleet:
        """Add the first waiting vehicle of each lane where it is due and there is room.

        `following` holds the next waiting vehicle of each lane and is advanced in place.
        """
        per_lane = self.due.shape[1]
        chosen, speeds = [], []
        for lane in np.flatnonzero(self.due[np.arange(LANES), following] <= clock):
            index = lane * per_lane + following[lane]
            last = np.searchsorted(fleet.lane, lane + 1)
            wish = float(self.waiting.desired[index])
            if last < len(fleet.x) and fleet.lane[last] == lane + 1:
                gap = fleet.x[last] - fleet.length[last] - ENTRY
                speed = min(wish, float(fleet.speed[last]))
                if gap <= max(6.0, speed + 2.0):
                    continue
            else:
                speed = wish
            chosen.append(index)
            speeds.append(speed)
            following[lane] += 1
        if not chosen:
            return fleet
        newcomers = replace(self.waiting.pick(np.array(chosen)), speed=np.array(speeds))
        return fleet.joined(newcomers)


def simulate(
    *, seconds: float, cap: tuple[float, float], segment: float, rng: np.random.Generator
) -> Tracks:
    """Simulate one period and record the vehicles on [0, segment] m every 0.2 s.

    Args:
        seconds: Length of the recording, after a warm-up of 600 s.
        cap: Lowest and highest desired speed (m/s) that the moving bottleneck allows.
        segment: Length of the recorded segment (m).
        rng: The only source of randomness.
    """
    warm_up, recorded = round(WARM_UP_SECONDS / STEP), round(seconds / STEP)
    inflow = _Inflow.drawn((warm_up + recorded) * STEP, rng)
    following = np.zeros(LANES, dtype=np.int64)
    fleet = inflow.waiting.pick(np.zeros(0, dtype=np.int64))
    middle, half = (cap[0] + cap[1]) / 2, (cap[1] - cap[0]) / 2
    phase, wander = rng.uniform(0, 2 * np.pi), rng.standard_normal()
    keep_wander, keep_noise = np.exp(-STEP / CAP_TAU), np.exp(-STEP / NOISE_TAU)
    fresh_wander = np.sqrt(1 - keep_wander**2)
    fresh_noise = NOISE_STDDEV * np.sqrt(1 - keep_noise**2)
    seen: list[tuple[int, _Fleet]] = []
    for tick in range(warm_up + recorded):
        clock = tick * STEP
        wander = keep_wander * wander + fresh_wander * rng.standard_normal()
        swing = 0.8 * np.sin(2 * np.pi * clock / CAP_PERIOD_SECONDS + phase) + 0.3 * wander
        limit = max(CAP_FLOOR, middle + half * swing)
        fleet = inflow.enter(fleet, clock, following)
        in_cap = (fleet.x >= CAP_FROM) & (fleet.x <= CAP_TO)
        desired = np.where(in_cap, np.minimum(fleet.desired, limit), fleet.desired)
        accel = _idm(fleet, slice(None), desired, *_leaders(fleet))
        if tick >= warm_up and (tick - warm_up) % RECORD_EVERY == 0:
            inside = np.flatnonzero((fleet.x >= 0) & (fleet.x <= segment))
            seen.append(((tick - warm_up) // RECORD_EVERY, fleet.pick(inside)))
        fleet.noise = keep_noise * fleet.noise + fresh_noise * rng.standard_normal(len(fleet.x))
        accel = accel + np.where(fleet.speed >= NOISE_MIN_SPEED, fleet.noise, 0.0)
        speed = np.clip(fleet.speed + accel * STEP, 0.0, MAX_SPEED)
        fleet.x = fleet.x + (fleet.speed + speed) / 2 * STEP
        fleet.speed = speed
        if fleet.x.size and fleet.x.max() > EXIT:
            stays = np.flatnonzero(fleet.x <= EXIT)
            fleet, desired = fleet.pick(stays), desired[stays]
        if tick % CHANGE_EVERY == 0 and len(fleet.x):
            now = _idm(fleet, slice(None), desired, *_leaders(fleet))
            fleet = _change_lanes(fleet, now, desired, clock, rng)
    return Tracks(
        frame=np.concatenate([np.full(len(f.x), number) for number, f in seen]),
        vehicle=np.concatenate([f.vehicle for _, f in seen]),
        x=np.concatenate([f.x for _, f in seen]),
        speed=np.concatenate([f.speed for _, f in seen]),
        lane=np.concatenate([f.lane for _, f in seen]),
        frames=len(seen),
    )
