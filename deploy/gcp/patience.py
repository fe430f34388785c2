"""Looks for machines where they are in stock, with luck and patience: place by place, until time is up."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deploy.gcp.gcloud import GcloudError, Refusal, Shell, say
from deploy.gcp.places import Placement
from deploy.kubernetes.problems import DeployError

_SECONDS_PER_MINUTE = 60


class LeftoverError(DeployError):
    """Something may be left that costs money; it says what, and the command that deletes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A thing to create in a place, which is removed when it comes out incomplete.

    Attributes:
        what: what messages call it, as `cluster NAME`.
        create: gcloud's arguments that create it there.
        delete: gcloud's arguments that delete it there.
    """

    what: str
    create: Callable[[Placement], Sequence[str]]
    delete: Callable[[Placement], Sequence[str]]

    def attempt(self, shell: Shell, place: Placement) -> None:
        """Create it; if that fails or is interrupted, delete what there is of it.

        Raises:
            GcloudError: it could not be created, and nothing is left of it.
            LeftoverError: nor could it be deleted.
        """
        with self.removed_if_not_finished(shell, place):
            shell.change(*self.create(place))

    @contextlib.contextmanager
    def removed_if_not_finished(self, shell: Shell, place: Placement) -> Iterator[None]:
        """Delete it when the block ends by an exception; what was there before is left alone."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, GcloudError) and error.refusal is Refusal.EXISTS:
                raise
            self.remove(shell, place)
            raise

    def remove(self, shell: Shell, place: Placement) -> None:
        """Delete it.

        Raises:
            LeftoverError: it could not be deleted.
        """
        try:
            shell.change(*self.delete(place))
        except GcloudError as error:
            if error.refusal is not Refusal.ABSENT:
                raise LeftoverError(f"{error}\n{self.leftover(shell, place)}") from error
        except KeyboardInterrupt:
            say(self.leftover(shell, place))
            raise

    @contextlib.contextmanager
    def said_if_not_finished(self, shell: Shell, place: Placement) -> Iterator[None]:
        """Say that it is there and costs money when the block ends by an exception."""
        try:
            yield
        except BaseException:
            say(self.leftover(shell, place))
            raise

    def leftover(self, shell: Shell, place: Placement) -> str:
        """Return what may cost money, and how to end that."""
        command = " ".join(shell.gcloud(*self.delete(place)))
        return f"{self.what} in {place} may be there and cost money until you delete it:\n  {command}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to go on.

    Attributes:
        minutes: no place is tried again later than that; each is tried once in any case.
        pause_seconds: between two rounds over all places.
        clock: seconds that only grow.
        sleep: waits for so many seconds.
    """

    minutes: float
    pause_seconds: float = 60.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def rounds(self) -> Iterator[int]:
        """Yield 1, 2, … until time is up."""
        end = self.clock() + self.minutes * _SECONDS_PER_MINUTE
        number = 1
        yield number
        while self.clock() + self.pause_seconds < end:
            say(f"out of stock everywhere; again in {self.pause_seconds:g} s")
            self.sleep(self.pause_seconds)
            number += 1
            yield number


@dataclass(slots=True, kw_only=True)
class Search:
    """Tries places until something could be created in one.

    Attributes:
        creation: what is to be created.
        full_regions: those whose quota turned out too small; they are not tried again.
        tried: attempts so far.
    """

    creation: Creation
    full_regions: set[str] = field(default_factory=set)
    tried: int = 0

    def run(self, shell: Shell, places: Iterable[Placement], patience: Patience) -> Placement:
        """Return the place that it was created in.

        Raises:
            GcloudError: gcloud refused for a reason that another place would not change.
            LeftoverError: an attempt left something behind.
            DeployError: it is in stock nowhere, or no quota has room.
        """
        places = tuple(places)
        for number in patience.rounds():
            found = self._round(shell, places, number)
            if found:
                return found
            if all(place.region in self.full_regions for place in places):
                raise DeployError(f"no region's quota has room for {self.creation.what}")
        raise DeployError(
            f"out of stock: {self.creation.what} could not be created in {self.tried} attempts; nothing is left of it. "
            "Try later, with more --patience, in more regions, or with --spot"
        )

    def _round(self, shell: Shell, places: Sequence[Placement], number: int) -> Placement | None:
        empty: set[str] = set()
        for place in places:
            if place.region in self.full_regions or empty.intersection(place.zones):
                continue
            self.tried += 1
            say(f"attempt {self.tried}, round {number}: {place}")
            try:
                self.creation.attempt(shell, place)
            except GcloudError as error:
                empty |= self._note(error, place)
            else:
                return place
        return None

    def _note(self, error: GcloudError, place: Placement) -> frozenset[str]:
        """Return the zones not to try again in this round; a region without quota is noted for good."""
        if error.refusal is Refusal.QUOTA:
            self.full_regions.add(place.region)
            say(f"{place.region} is passed over: its quota is too small")
            return frozenset()
        if error.refusal is Refusal.STOCK_OUT:
            empty = error.empty_zones or frozenset(place.zones if len(place.zones) == 1 else ())
            say(f"out of stock: {', '.join(sorted(empty)) or place}")
            return empty
        raise error
