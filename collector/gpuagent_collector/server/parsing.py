"""Parsing of agents' messages in bounded memory: a part of two bytes becomes an object of fifty."""

from google.protobuf.message import DecodeError

from gpuagent_collector.errors import ProtocolError
from gpuagent_proto.v1 import telemetry_pb2 as wire

# Of a message in parts. The longest, a hello with 10,000 sessions, has less than 1 MiB.
MAX_PARTS_BYTES = 2 * 1024 * 1024

# Tags of the fields whose content is bytes or text: `batch` and `output`.
_LARGE = tuple(
    bytes([wire.AgentMessage.DESCRIPTOR.fields_by_name[name].number << 3 | 2]) for name in ("batch", "output")
)


def parse_agent_message(content: bytes) -> wire.AgentMessage:
    """Return the message in `content`.

    Raises:
        ProtocolError: it is no AgentMessage, or a large one of anything but one batch or one piece of output.
    """
    if len(content) > MAX_PARTS_BYTES and not (content.startswith(_LARGE) and _is_one_field(content)):
        raise ProtocolError(f"a message of {len(content):,} bytes that is neither a batch nor output")
    try:
        return wire.AgentMessage.FromString(content)
    except DecodeError as error:
        raise ProtocolError("not an AgentMessage") from error


def _is_one_field(content: bytes) -> bool:
    """Return whether a tag of one byte and a length are followed by exactly so many bytes."""
    length, position = 0, 1
    for position in range(1, 6):
        length |= (content[position] & 0x7F) << 7 * (position - 1)
        if content[position] < 0x80:
            break
    return position + 1 + length == len(content)
