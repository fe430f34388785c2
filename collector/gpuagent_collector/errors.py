"""What can go wrong in the collector, said so that its user can mend it."""


class CollectorError(Exception):
    """Root of the collector's errors: one line that says what is wrong and what to do. The CLI exits with 1."""


class MisuseError(CollectorError):
    """The user asked for something that makes no sense. The CLI exits with 2."""


class NothingToCompareError(CollectorError):
    """The store holds too little for what was asked: what it has, and what to try."""


class StoreError(CollectorError):
    """The store cannot be opened, read or written."""


class RejectedRecordsError(CollectorError):
    """A message can never be stored, however often it is sent: why, in words."""
