"""The search for machines in stock: place by place, until time is up."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deploy.gcp.gcloud import GcloudError, Refusal, Shell, say
from deploy.gcp.places import Placement
from deploy.kubernetes.problems import DeployError

_SECONDS_PER_MINUTE = 60


class LeftoverError(DeployError):
    """Something may be left that costs money; names it, and the command that deletes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A resource to create in a place, removed if its creation fails.

    Attributes:
        what: its name in messages, such as `cluster NAME`.
        create: gcloud's arguments that create it there.
        delete: gcloud's arguments that delete it there.
    """

    what: str
    create: Callable[[Placement], Sequence[str]]
    delete: Callable[[Placement], Sequence[str]]

    def attempt(self, shell: Shell, place: Placement) -> None:
        """Create it; if that fails or is interrupted, delete its remains.

        Raises:
            GcloudError: it could not be created, and nothing is left of it.
            LeftoverError: it could not be deleted either.
        """
        with self.removing_remains(shell, place):
            shell.change(*self.create(place))

    @contextlib.contextmanager
    def removing_remains(self, shell: Shell, place: Placement) -> Iterator[None]:
        """Delete it if the block raises, unless it existed before."""
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
    def reporting_leftover(self, shell: Shell, place: Placement) -> Iterator[None]:
        """Print that it exists and costs money if the block raises."""
        try:
            yield
        except BaseException:
            say(self.leftover(shell, place))
            raise

    def leftover(self, shell: Shell, place: Placement) -> str:
        """Return a text that names it, and the command that deletes it."""
        command = " ".join(shell.gcloud(*self.delete(place)))
        return f"{self.what} in {place} may exist and cost money until you delete it:\n  {command}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The time limit of a search.

    Attributes:
        minutes: after this time no place is tried again; each is tried once in any case.
        pause_seconds: pause between two rounds over all places.
        clock: returns monotonic seconds.
        sleep: waits for a number of seconds.
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
    """A search that tries places until a creation succeeds.

    Attributes:
        full_regions: regions whose quota is too small; they are not tried again.
        tried: attempts so far.
    """

    creation: Creation
    full_regions: set[str] = field(default_factory=set)
    tried: int = 0

    def run(self, shell: Shell, places: Iterable[Placement], patience: Patience) -> Placement:
        """Return the place of the creation.

        Raises:
            GcloudError: gcloud failed for a reason that holds in every place.
            LeftoverError: an attempt left something behind.
            DeployError: it is out of stock everywhere, or every quota is too small.
        """
        places = tuple(places)
        for number in patience.rounds():
            found = self._round(shell, places, number)
            if found:
                return found
            if all(place.region in self.full_regions for place in places):
                raise DeployError(f"the quota of every region is too small for {self.creation.what}")
        raise DeployError(
            f"out of stock: {self.creation.what} could not be created in {self.tried} attempts, and nothing is left; "
            "try later, with more --patience, in more regions, or with --spot"
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
        """Return the zones to skip in this round; skip a region without quota in all rounds."""
        if error.refusal is Refusal.QUOTA:
            self.full_regions.add(place.region)
            say(f"skipping {place.region}: its quota is too small")
            return frozenset()
        if error.refusal is Refusal.STOCK_OUT:
            empty = error.empty_zones or frozenset(place.zones if len(place.zones) == 1 else ())
            say(f"out of stock: {', '.join(sorted(empty)) or place}")
            return empty
        raise error
