"""String formats as patterns, with the meaning that the check afterwards gives them.

Sources: RFC 3339 (dates, times, durations), RFC 5321 (mailboxes), RFC 1123 and 5890 (host names), RFC 3986 and 3987 (URIs, IRIs),
RFC 4291 (IPv6), RFC 6570 (templates), RFC 6901 (pointers), RFC 4122 (UUIDs). Narrower on purpose: fractions of seconds have up to
nine digits, leap seconds are written in UTC, numbers of a duration have up to nine digits, mailboxes are not quoted, and
labels of hosts are not encoded.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FormatPattern:
    """Patterns for a format; a text in the format matches all of them.

    Attributes:
        patterns: Their texts, anchored.
        is_exact: They match what the format says and nothing else, so that their complement is the format's.
        is_sound: Whatever matches all of them is in the format.
    """

    patterns: tuple[str, ...]
    is_exact: bool = True
    is_sound: bool = True


def format_pattern(name: str) -> FormatPattern | None:
    """Give the patterns of a format; None where a format is only an annotation."""
    return _FORMATS.get(name)


def _whole(*bodies: str, is_exact: bool = True, is_sound: bool = True) -> FormatPattern:
    return FormatPattern(tuple(f"^(?:{body})$" for body in bodies), is_exact and is_sound, is_sound)


_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"
    f"{_LEAP_YEAR}-02-29)"
)
_FRACTION = r"(?:\.[0-9]{1,9})?"
_TIME = (
    rf"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{_FRACTION}(?:[Zz]|[+\-](?:[01][0-9]|2[0-3]):[0-5][0-9])|"
    rf"23:59:60{_FRACTION}(?:[Zz]|[+\-]00:00))"
)
_COUNT = "[0-9]{1,9}"
_CLOCK = f"T(?:{_COUNT}H(?:{_COUNT}M(?:{_COUNT}S)?)?|{_COUNT}M(?:{_COUNT}S)?|{_COUNT}S)"
_CALENDAR = f"(?:{_COUNT}Y(?:{_COUNT}M(?:{_COUNT}D)?)?|{_COUNT}M(?:{_COUNT}D)?|{_COUNT}D)"
_DURATION = f"P(?:{_CALENDAR}(?:{_CLOCK})?|{_CLOCK}|{_COUNT}W)"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_HEX = "[0-9A-Fa-f]"
_GROUP = f"{_HEX}{{1,4}}"


def _ipv6() -> str:
    choices = [f"(?:{_GROUP}:){{6}}(?:{_GROUP}:{_GROUP}|{_IPV4})"]
    for before in range(8):
        left = f"(?:{_GROUP}:){{{before - 1}}}{_GROUP}" if before else ""
        after = 7 - before
        right = []
        if after >= 1:
            right.append(f"(?:{_GROUP}:){{0,{after - 1}}}{_GROUP}")
        if after >= 2:
            right.append(f"(?:{_GROUP}:){{0,{after - 2}}}{_IPV4}")
        choices.append(f"{left}::" + (f"(?:{'|'.join(right)})?" if right else ""))
    return "(?:" + "|".join(choices) + ")"


_LETTER = "[A-Za-z0-9]"
_INNER = r"[A-Za-z0-9\-]"
# No label has hyphens in its third and fourth place: that is kept for encoded ones.
_LABEL = f"{_LETTER}(?:{_LETTER}|{_INNER}{{1,2}}{_LETTER}|{_INNER}(?:{_LETTER}{_INNER}|-{_LETTER}){_INNER}{{0,58}}{_LETTER})?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+"
_MAILBOX = rf"{_ATOM}(?:\.{_ATOM})*@(?:{_HOST}|\[{_IPV4}\])"
_UUID = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_POINTER = "(?:/(?:[^/~]|~[01])*)*"
_UNICODE = (
    "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef"
    + "".join(f"\\u{{{plane:x}0000}}-\\u{{{plane:x}fffd}}" for plane in range(1, 14))
    + "\\u{e1000}-\\u{efffd}"
)
_PRIVATE = "\\ue000-\\uf8ff\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}"


def _uri(*, is_reference: bool, more: str = "", more_in_query: str = "") -> str:
    def of(others: str) -> str:
        return rf"(?:[A-Za-z0-9._~!$&'()*+,;={others}{more}\-]|%{_HEX}{{2}})"

    letter = of(":@")
    segments = f"(?:/{letter}*)*"
    host = rf"(?:\[(?:{_ipv6()}|[vV]{_HEX}+\.[A-Za-z0-9._~!$&'()*+,;=:\-]+)\]|{of('')}*)"
    authority = f"(?:{of(':')}*@)?{host}(?::[0-9]*)?"
    path = f"//{authority}{segments}|/(?:{letter}+{segments})?"
    query = f"(?:{letter}|[/?{more_in_query}])*"
    fragment = f"(?:{letter}|[/?])*"
    tail = rf"(?:\?{query})?(?:#{fragment})?"
    whole = rf"[A-Za-z][A-Za-z0-9+.\-]*:(?:{path}|{letter}+{segments})?{tail}"
    if not is_reference:
        return whole
    return f"{whole}|(?:{path}|{of('@')}+{segments})?{tail}"


def _template() -> str:
    name = f"(?:[A-Za-z0-9_]|%{_HEX}{{2}})"
    variable = rf"{name}(?:\.?{name})*(?::[1-9][0-9]{{0,3}}|\*)?"
    literal = rf"(?:[!#$&()*+,\-./0-9:;=?@A-Z\[\]_a-z~{_UNICODE}{_PRIVATE}]|%{_HEX}{{2}})"
    return rf"(?:{literal}|\{{[+#./;?&=,!@|]?{variable}(?:,{variable})*\}})*"


_FORMATS = {
    "date": _whole(_DATE),
    "time": _whole(_TIME, is_exact=False),
    "date-time": _whole(f"{_DATE}[Tt]{_TIME}", is_exact=False),
    "duration": _whole(_DURATION, is_exact=False),
    "email": _whole(_MAILBOX, "[^@]{1,64}@.{1,253}", is_exact=False),
    "hostname": _whole(_HOST, ".{1,253}", is_exact=False),
    "ipv4": _whole(_IPV4),
    "ipv6": _whole(_ipv6()),
    "uuid": _whole(_UUID),
    "uri": _whole(_uri(is_reference=False)),
    "uri-reference": _whole(_uri(is_reference=True)),
    "iri": _whole(_uri(is_reference=False, more=_UNICODE, more_in_query=_PRIVATE)),
    "iri-reference": _whole(_uri(is_reference=True, more=_UNICODE, more_in_query=_PRIVATE)),
    "uri-template": _whole(_template(), is_exact=False),
    "json-pointer": _whole(_POINTER),
    "relative-json-pointer": _whole(f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})"),
    "idn-email": _whole(r"[\s\S]*@[\s\S]*", is_sound=False),
    "idn-hostname": _whole(r"[\s\S]*", is_sound=False),
    "regex": _whole(r"[\s\S]*", is_sound=False),
}
