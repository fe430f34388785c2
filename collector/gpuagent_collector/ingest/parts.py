"""A count of a message's parts before it is parsed: a part of two bytes becomes an object of fifty."""


def count_parts(content: memoryview, path: tuple[int, ...], limit: int) -> int:
    """Return the number of fields in a serialised message, with those of the messages that it has along a path.

    Args:
        content: the message.
        path: the number of the field whose messages are counted too, and so on below it.
        limit: the number beyond which it stops.

    Raises:
        ValueError: it is no message.
    """
    count = position = 0
    while position < len(content) and count <= limit:
        count += 1
        tag, position = _read_varint(content, position)
        match tag & 7:
            case 0:
                _, position = _read_varint(content, position)
            case 1:
                position += 8
            case 2:
                length, position = _read_varint(content, position)
                if path and tag >> 3 == path[0]:
                    count += count_parts(content[position : position + length], path[1:], limit - count)
                position += length
            case 5:
                position += 4
            case _:
                raise ValueError("an unknown kind of field")
    return count


def _read_varint(content: memoryview, position: int) -> tuple[int, int]:
    """Return a number of variable length, and the position behind it."""
    value = shift = 0
    for byte in content[position : position + 10]:
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number without an end")
