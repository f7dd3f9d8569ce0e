"""The patterns of `PromptGuard` for text that gives a model orders, and the search for them.

The patterns find common and crude attacks; text that asks politely passes. `prompt_guard` acts on a match.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from functools import cache
from heapq import heapify, heappop, heapreplace
from html import unescape
from typing import NamedTuple

from ._characters import BIDI, TAGS, fold

_REACH = 1000  # characters around an anchor that are searched; the texts that the patterns look for are shorter
_MOST_BLOBS = 1000
_LONGEST_BLOB = 8192
_SHORTEST_BLOB = 32
SHORTEST_FIND = 4  # characters of the shortest text that a standard rule can match


class Rule(NamedTuple):
    """A kind of injection. Every text that the pattern matches contains one of its `anchors`, if it has any."""

    kind: str
    pattern: re.Pattern[str]
    anchors: tuple[str, ...] = ()
    is_folded: bool = True  # whether the rule is matched with the folded text, or with the original characters

    def is_in(self, text: str) -> bool:
        if not self.anchors:
            return self.pattern.search(text) is not None
        for anchor in self.anchors:
            if anchor in text:
                break
        else:
            return False  # nearly always
        return any(self.pattern.search(text, start, end) for start, end in _places(text, self.anchors))


def _places(text: str, anchors: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The spans around the anchors, merged: finding an anchor is far cheaper than trying a pattern."""
    following = [(place, anchor) for anchor in anchors if (place := text.find(anchor)) >= 0]
    heapify(following)
    start = end = 0
    while following:
        place, anchor = following[0]
        if place - _REACH > end:
            if end:
                yield start, end
            start = max(0, place - _REACH)
        end = place + _REACH
        # Nearer anchors are in the same span.
        place = text.find(anchor, place + _REACH // 5)
        if place >= 0:
            heapreplace(following, (place, anchor))
        else:
            heappop(following)
    if end:
        yield start, end


class Rules:
    """Rules in the order in which they are tried, and a quick test of which are worth trying on a text.

    `own` have no anchors and are tried on every text. The others are tried only on a text that contains one of their
    probes: an anchor, or a part of it that is an anchor too.
    """

    __slots__ = ("_ascii", "_characters", "_foreign", "_own", "_standard")

    def __init__(self, own: Sequence[Rule] = (), standard: tuple[Rule, ...] = ()) -> None:
        self._own = tuple(own)
        self._standard = standard
        folded = _probes(standard, is_folded=True)
        self._ascii = tuple([probe for probe in folded if probe[0].isascii()])
        self._foreign = tuple([probe for probe in folded if not probe[0].isascii()])
        self._characters = _probes(standard, is_folded=False)

    def find(self, text: str) -> tuple[str, ...]:
        """The kinds that are found: in the text, in look-alike and invisible letters, in entities and in base64."""
        found: dict[str, None] = {}
        is_ascii = text.isascii()
        if not is_ascii and _SUSPICIOUS.search(text):
            found.update(dict.fromkeys(_hidden(text)))
        self._search(text, found)
        if not is_ascii or len(text) >= _SHORTEST_BLOB or "&#" in text:
            for decoded in _decoded_texts(text):
                known = len(found)
                self._search(decoded, found)
                if len(found) > known:
                    found["encoded text"] = None
        return tuple(found)

    def _search(self, text: str, found: dict[str, None]) -> None:
        folded = text.lower() if text.isascii() else fold(text).text
        for rule in (*self._own, *self.worth_asking(text, folded)):
            if rule.kind not in found and rule.is_in(folded if rule.is_folded else text):
                found[rule.kind] = None

    def worth_asking(self, text: str, folded: str) -> Sequence[Rule]:
        """The anchored rules with a probe in the text, in order: for most texts, none."""
        if len(folded) < SHORTEST_FIND and len(text) < SHORTEST_FIND:
            return ()
        asked = 0  # a bit for each rule
        for probe, rules in self._ascii:
            if probe in folded:
                asked |= rules
        if not folded.isascii():
            for probe, rules in self._foreign:
                if probe in folded:
                    asked |= rules
        for probe, rules in self._characters:
            if probe in text:
                asked |= rules
        return [rule for place, rule in enumerate(self._standard) if asked >> place & 1] if asked else ()


@cache
def _probes(rules: tuple[Rule, ...], *, is_folded: bool) -> tuple[tuple[str, int], ...]:
    """The fewest strings of which every text with an anchor contains one, each with a bit mask of its rules."""
    anchors = {anchor for rule in rules if rule.is_folded == is_folded for anchor in rule.anchors}
    return tuple(
        [
            (probe, sum(1 << place for place, rule in enumerate(rules) if _has(rule, probe, is_folded)))
            for probe in sorted(anchors)
            if not any(other in probe for other in anchors if other != probe)
        ]
    )


def _has(rule: Rule, probe: str, is_folded: bool) -> bool:
    return rule.is_folded == is_folded and any(probe in anchor for anchor in rule.anchors)


# -- characters --------------------------------------------------------------------------------------------------

_SUSPICIOUS = re.compile("[\u200b-\u200d\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_OVERRIDE = re.compile("[\u202d\u202e]")
_ZERO_WIDTH_RUN = re.compile("[\u200b-\u200d\u2060-\u2064\ufeff]{4,}")
_ZERO_WIDTH_IN_WORD = re.compile("(?<=[A-Za-z])[\u200b-\u200d\u2060-\u2064\ufeff]{1,8}(?=[A-Za-z])")


def _hidden(text: str) -> Iterator[str]:
    if TAGS.search(text):
        yield "hidden text"
    # Scripts that run from right to left need some of these characters; no script needs overrides.
    if (_OVERRIDE if _RIGHT_TO_LEFT.search(text) else BIDI).search(text):
        yield "reordered text"
    in_words = _ZERO_WIDTH_IN_WORD.finditer(text)
    if _ZERO_WIDTH_RUN.search(text) or sum(1 for _, _ in zip(in_words, range(3), strict=False)) == 3:
        yield "invisible characters"


# -- encodings ---------------------------------------------------------------------------------------------------

_BLOB = re.compile(
    rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{_SHORTEST_BLOB},}}+={{0,2}}"
    r"(?>(?:\r?\n[A-Za-z0-9+/]{4,76}+={0,2})*)"
)
_TO_STANDARD = str.maketrans("-_", "+/", "\r\n=")
_TAG_TEXT = re.compile("[\U000e0020-\U000e007e]{4,}")


def _decoded_texts(text: str) -> Iterator[str]:
    """Texts that are encoded in the text: a model reads them, a person does not."""
    if "&#" in text:
        yield unescape(text)
    if not text.isascii():
        for tags in _TAG_TEXT.findall(text):
            yield "".join([chr(ord(tag) - 0xE0000) for tag in tags])
    for _, blob in zip(range(_MOST_BLOBS), _BLOB.finditer(text), strict=False):
        decoded = _decoded(blob.group())
        if decoded is not None:
            yield decoded


def _decoded(blob: str) -> str | None:
    """The decoded base64, if it is text."""
    characters = blob[:_LONGEST_BLOB].translate(_TO_STANDARD)
    try:
        data = base64.b64decode(characters[: len(characters) // 4 * 4])
        text = data.decode("utf-8", "strict" if len(blob) <= _LONGEST_BLOB else "ignore")
    except (binascii.Error, UnicodeDecodeError):
        return None
    # Names and paths decode to noise; text has words.
    return text if sum(map(str.isprintable, text)) >= 0.9 * len(text) and " " in text else None


# -- words -------------------------------------------------------------------------------------------------------

_GAP = r"[\W_]{1,12}"
_FILL = (
    rf"(?:(?:all|any|every|everything|of|the|these|those|this|that|my|our|your|to|from|you|were|was|have|been|given|and|or"
    rf"|other|such|set|system|user|safety){_GAP}){{0,5}}"
)
_VERB = (
    rf"(?:ignore|disregard|forget|discard|overrule|neglect|pay{_GAP}no{_GAP}attention{_GAP}to"
    rf"|(?:do{_GAP}not|don.t|stop){_GAP}(?:follow|following|obey|obeying))"
)
_EARLIER = r"(?:previous|prior|above|earlier|preceding|foregoing|former|original|initial|past|old|your)"
_ORDERS = (
    r"(?:instructions?|directions?|directives?|prompts?|rules|guidelines?|guardrails?|orders|commands|constraints"
    r"|restrictions|programming|training)"
)
_READER = r"(?:ai|llms?|language models?|chat ?bots?|gpt|claude|gemini|copilot)"

_WORDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "instruction override",
        ("ignor", "disregard", "forget", "discard", "overrul", "neglect", "attention", "follow", "obey"),
        rf"\b{_VERB}{_GAP}{_FILL}{_EARLIER}{_GAP}{_FILL}{_ORDERS}\b"
        rf"|\b{_VERB}{_GAP}{_FILL}{_ORDERS}{_GAP}{_FILL}(?:above|before|previously|earlier)\b"
        rf"|\b(?:ignore|disregard|forget){_GAP}everything{_GAP}(?:above|before|prior|you{_GAP}(?:were|have{_GAP}been|know)"
        rf"|i{_GAP}(?:said|told))\b",
    ),
    (
        "instruction override",
        ("overrid", "bypass", "circumvent"),
        rf"\b(?:override|bypass|circumvent){_GAP}{_FILL}(?:your|previous|prior){_GAP}{_FILL}{_ORDERS}\b",
    ),
    (
        "role change",
        ("you are now", "you're now", "act as", "behave as", "respond as", "from now on"),
        r"\byou(?: are|'re) now (?:in )?(?:an? |the )?(?:dan\b|jailbroken|unrestricted|uncensored|unfiltered|evil"
        r"|free from|developer mode|god mode|no longer bound)"
        r"|\b(?:act|behave|respond) as (?:if you (?:have|had) no (?:rules|restrictions|guidelines|limits)|dan\b"
        r"|an? (?:unrestricted|uncensored|jailbroken|evil))"
        r"|\bfrom now on,? you (?:will|must|shall|are to) (?:only|obey|ignore|always (?:obey|answer)|act|pretend)",
    ),
    (
        "new orders",
        ("instruction", "directive", "order", "task", "goal", "objective", "mission"),
        rf"\b(?:new|updated|revised|real|actual|urgent) (?:system )?(?:instructions?|directives?|orders?) (?:for|to) "
        rf"(?:you\b|the (?:{_READER}|assistant|agent|model)\b|{_READER}\b)"
        r"|\byour (?:new|real|actual|true) (?:task|goal|instructions?|objective|mission|directive|orders)\b"
        r"[^.\n]{0,20} (?:is|are)\b",
    ),
    (
        "addressed to the model",
        ("ai", "llm", "model", "bot", "gpt", "claude", "gemini", "copilot", "assistant"),
        rf"\b(?:attention|listen|hey|dear)\W{{1,3}}(?:all |any |the )?{_READER}(?: (?:agents?|assistants?|models?))?\b"
        rf"|\b(?:{_READER}|assistant)(?: (?:agents?|assistants?|models?))?\b[^.\n]{{0,80}}\b(?:must|should|shall|please"
        r"|now|will) (?:immediately |now |first |then )?(?:send|upload|exfiltrate|leak|curl|wget|reveal|delete|disable"
        r"|ignore|(?:run|execute) the following)\b",
    ),
    (
        "concealment",
        ("tell", "mention", "reveal", "disclose", "show", "inform", "alert", "warn"),
        r"\b(?:do not|don.t|never) (?:tell|mention|reveal|disclose|show) (?:this|it|that|any of this|these instructions"
        r"|these steps) to (?:the |your )?(?:user|human|operator|anyone|anybody)\b"
        r"|\b(?:do not|don.t|never) (?:tell|inform|alert|warn) (?:the |your )?(?:user|human|operator) (?:about|of|that)"
        r" (?:this|these|you|what you)\b",
    ),
    (
        "prompt theft",
        ("system prompt", "initial prompt", "system message", "instructions", "hidden prompt"),
        r"\b(?:reveal|print|repeat|output|show|display|send|leak|disclose|give|tell)(?: me| us)?(?: all of)? your"
        r"(?: full| entire| complete| exact| hidden| secret| own){0,2} (?:system prompt|initial prompt|hidden prompt"
        r"|system message|(?:original|initial|hidden|system|secret) instructions)\b",
    ),
    (
        "exfiltration",
        ("send", "post", "upload", "transmit", "forward", "exfiltrat", "leak", "append"),
        r"\b(?:send|post|upload|transmit|forward|exfiltrate|leak|append)\W{1,4}(?:\w{1,40}\W{1,4}){0,6}?(?:api.?keys?"
        r"|passwords?|credentials|secrets|access tokens?|\.env|ssh keys?|private keys?|environment variables"
        r"|conversation|chat history)\b\W{1,4}(?:\w{1,40}\W{1,4}){0,6}?(?:to|at|into)\W{1,4}(?:\w{1,40}\W{1,4}){0,3}?"
        r"(?:https?:|[\w.]{1,60}@)",
    ),
)

_SOME = r"(?:\w{1,12}\W{1,4})"
_FOREIGN: tuple[tuple[tuple[str, ...], str], ...] = (
    (  # German
        ("ignorier", "vergiss", "vergesst", "missachte"),
        rf"\b(?:ignorier\w{{0,4}}|vergiss|vergesst|missachte\w{{0,2}})\W{{1,4}}{_SOME}{{0,4}}(?:vorherige|bisherige|fruhere"
        rf"|obige|vorangegangene)\w?\W{{1,4}}{_SOME}{{0,2}}(?:anweisung|instruktion|befehl|vorgabe|regeln)",
    ),
    (  # Dutch
        ("negeer", "vergeet"),
        rf"\b(?:negeer|vergeet)\W{{1,4}}{_SOME}{{0,4}}(?:vorige|eerdere|voorgaande|bovenstaande)\W{{1,4}}"
        r"(?:instructies|opdrachten|aanwijzingen|regels)",
    ),
    (  # French
        ("ignore", "oublie", "tiens pas compte"),
        rf"\b(?:ignore[zr]?|oublie[zr]?|ne tiens pas compte)\W{{1,4}}{_SOME}{{0,4}}(?:instructions|consignes|directives"
        rf"|regles)\W{{1,4}}{_SOME}{{0,2}}(?:precedent|anterieur|ci.dessus)",
    ),
    (  # Spanish, Portuguese, Italian
        ("ignor", "olvid", "esqueca", "dimentica", "desconsidere", "trascura"),
        r"\b(?:ignor[ae]\w{0,2}|olvid[ae]\w{0,2}|esqueca\w{0,2}|dimentica\w{0,2}|desconsidere|trascura)\W{1,4}"
        rf"{_SOME}{{0,4}}(?:instruccion|instruco|indicacion|orden|regla|regra|istruzion|indicazion|ordin)\w{{0,6}}\W{{1,4}}"
        rf"{_SOME}{{0,2}}(?:anterior|previa|precedent|acima|sopra)",
    ),
    (  # Polish
        ("ignoruj", "zapomnij"),
        rf"\b(?:zignoruj\w{{0,3}}|ignoruj\w{{0,3}}|zapomnij\w{{0,3}})\W{{1,4}}{_SOME}{{0,3}}(?:poprzedni|wczesniejsz|powyzsz)"
        r"\w{0,5}\W{1,4}(?:instrukc|polecen|wytyczn)",
    ),
    (  # Turkish
        ("onceki",),
        rf"\bonceki\W{{1,4}}{_SOME}{{0,2}}(?:talimat|komut|yonerge)\w{{0,6}}\W{{1,4}}{_SOME}{{0,2}}"
        r"(?:yok ?say|gormezden|unut|dikkate alma)",
    ),
    (  # Russian, Ukrainian
        ("игнориру", "ігнору", "забудь"),
        rf"\b(?:игнориру|проигнориру|ігнору|забудь)\w{{0,3}}\W{{1,4}}{_SOME}{{0,3}}(?:предыдущ|прежн|вышеуказанн|попередн)"
        r"\w{0,4}\W{1,4}(?:инструкц|указан|команд|правил|інструкц|вказівк)",
    ),
    (  # Chinese
        ("忽略", "无视", "無視", "忘记", "忘記", "不要理会"),
        r"(?:忽略|无视|無視|忘记|忘記|不要理会)[^。\n]{0,8}(?:之前|以上|先前|前面|此前|上述)[^。\n]{0,8}"
        r"(?:指令|指示|说明|說明|提示|命令|规则)",
    ),
    (  # Japanese
        ("無視", "忘れ"),
        r"(?:以前|これまで|上記|前|先ほど)の[^。\n]{0,8}(?:指示|命令|プロンプト|ルール)[^。\n]{0,6}(?:無視|忘れ)",
    ),
    (  # Korean
        ("무시", "잊"),
        r"(?:이전|위|앞선|지금까지)[^.\n]{0,10}(?:지시|명령|지침|프롬프트)[^.\n]{0,8}(?:무시|잊)",
    ),
    (  # Arabic
        ("التعليمات", "الأوامر", "التوجيهات"),
        r"(?:تجاهل|انس)[^.\n]{0,12}(?:التعليمات|الأوامر|التوجيهات)[^.\n]{0,8}(?:السابقة|أعلاه)",
    ),
    (  # Hindi
        ("पिछले", "पिछली"),
        r"(?:पिछले|पिछली)[^।\n]{0,12}(?:निर्देश|आदेश)[^।\n]{0,12}(?:अनदेखा|नज़रअंदाज़|भूल)",
    ),
)

_CHARACTERS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "role marker",
        ("<|", "[INST]", "[/INST]", "SYS>>", "_of_turn>"),
        r"""(?<!["'`\w(])(?:<\|(?:im_start|im_end|system|user|assistant|developer|start_header_id|end_header_id|eot_id"""
        r"""|endoftext|begin_of_text)\|>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>)""",
    ),
    (
        "fake message",
        ("system", "tool", "function_", "antml:", "SYSTEM", "DEVELOPER", "ADMIN"),
        r"""(?<!["'`\w(])</?(?:system[-_]?(?:reminder|prompt|message|instructions?)|(?:tool|function)_(?:result|response"""
        r"""|output|call)s?|antml:\w{1,30})>|^\W{0,8}(?:SYSTEM|DEVELOPER|ADMIN)[ _-](?:MESSAGE|PROMPT|OVERRIDE|NOTICE"""
        r"""|INSTRUCTIONS?|COMMAND)\b|^[ \t]{0,20}</?system>[ \t]*$""",
    ),
    (
        "image that carries data out",
        ("![",),
        r"!\[[^\]\n]{0,200}\]\(\s{0,10}<?https?://[^)\s?]{1,300}\?[^)\s]{0,300}?(?:=[^)\s&]{0,40}(?:\{|\[|<|\$|%7b|%5b)"
        r"|=(?:data|secret|api_?key|token|password|conversation|history|base64)\b|=[A-Za-z0-9+/_-]{80})",
    ),
)


@cache
def standard_rules() -> tuple[Rule, ...]:
    """The rules of the policy, compiled on first use."""
    rules = [Rule(kind, re.compile(pattern), anchors) for kind, anchors, pattern in _WORDS]
    # Folding replaces some letters of other scripts with Latin look-alikes, so the patterns are folded too.
    for anchors, pattern in _FOREIGN:
        folded = tuple([fold(anchor).text for anchor in anchors])
        rules.append(Rule("instruction override", re.compile(_folded(pattern)), folded))
    rules += [Rule(kind, re.compile(pattern, re.MULTILINE), anchors, False) for kind, anchors, pattern in _CHARACTERS]
    return tuple(rules)


def _folded(pattern: str) -> str:
    """The pattern with its letters folded, except in escapes such as `\\W`."""
    return "".join([part if part.startswith("\\") else fold(part).text for part in re.split(r"(\\.)", pattern)])
