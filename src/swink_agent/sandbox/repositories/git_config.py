"""Parses git's configuration as git itself does, and knows which settings cannot start a program.

The approvals use the same parser to decide what git may do unasked. The harmless settings are listed, not the dangerous
ones: git has dozens of settings that start a program (monitors, hooks, filters, drivers, helpers, pagers, editors,
aliases, includes of all those) and gets new ones. The launcher loads this module: it imports the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

LARGEST = 1024 * 1024
STRATEGIES = frozenset({"", "ort", "recursive", "resolve", "octopus", "ours", "subtree"})
"""The merge strategies that are part of git."""


class Setting(NamedTuple):
    """One setting. `section` and `name` are in lower case; `value` is `None` if the line has only a name."""

    section: str
    subsection: str | None
    name: str
    value: str | None

    def __str__(self) -> str:
        return ".".join(part for part in (self.section or None, self.subsection, self.name) if part is not None)


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|[#;][^\n]*)
    |\[(?P<section>[\w.-]+)(?:[ \t]+"(?P<subsection>(?:[^"\\\n]|\\[^\n])*)")?\]
    |(?P<name>[A-Za-z][A-Za-z0-9-]*)[ \t]*(?:(?P<equals>=)|(?=\n|\Z))""",
    re.VERBOSE | re.ASCII,
)
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"', "\n": ""}


def read_settings(text: str) -> tuple[list[Setting], bool]:
    """Returns the settings up to the first error, and whether there was no error: git reads no further either."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found: list[Setting] = []
    section, subsection = "", None
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return found, False
        at = token.end()
        if token["section"] is not None:
            section, _, dotted = token["section"].lower().partition(".")
            quoted = token["subsection"]
            subsection = (dotted or None) if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        elif token["name"] is not None:
            value: str | None = None
            if token["equals"]:
                value, at = _read_value(text, at)
                if at < 0:
                    return found, False
            found.append(Setting(section, subsection, token["name"].lower(), value))
    return found, True


def _read_value(text: str, at: int) -> tuple[str, int]:
    """Returns the value that begins there and where it ends, or -1 if git cannot read it."""
    value: list[str] = []
    kept = 0  # the length without spaces at the end
    in_quotes = False
    while at < len(text):
        letter = text[at]
        at += 1
        if letter == "\n":
            break
        if letter == "\\":
            following = text[at : at + 1]
            if following not in _ESCAPED:
                return "", -1
            at += 1
            value.append(_ESCAPED[following])
        elif letter == '"':
            in_quotes = not in_quotes
        elif not in_quotes and letter in "#;":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        elif not in_quotes and letter in " \t":
            if value:
                value.append(letter)
            continue
        else:
            value.append(letter)
        kept = len(value)
    return ("", -1) if in_quotes else ("".join(value[:kept]), at)


# -- what is harmless --------------------------------------------------------------------------------------------

_ODD_LETTER = re.compile(r"[^\t\x20-\x7e\xa0-\U0010ffff]")
_CLEAR_LINE = re.compile(
    r"""[ \t]*(?:\#.*|;.*
    |(?:\[[A-Za-z0-9-]+(?:[ ]"(?:[^"\\]|\\["\\])*")?\][ \t]*)?
     (?:[A-Za-z][A-Za-z0-9-]*(?:[ \t]*=(?:[^"\\\#;]|"(?:[^"\\]|\\["\\nt])*"|\\["\\nt])*)?)?
     (?:[\#;](?:.*[^\\])?)?
    )""",
    re.VERBOSE | re.ASCII,
)


def is_unambiguous(text: str) -> bool:
    """Whether all programs read it alike: no value over several lines, nothing half quoted, no control characters."""
    return all(_CLEAR_LINE.fullmatch(line) and not _ODD_LETTER.search(line) for line in text.split("\n"))


_ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git|file|git\+ssh|ssh\+git|ftps?)://(?!-)|(?!-)(?![^/]*:(?::|//)))", re.IGNORECASE
)


def _needs_no_helper(value: str) -> bool:
    """Whether git itself fetches from the address: it names no helper (`ext::`, `made-up://`) and is not an option."""
    return bool(_ADDRESS.match(value))


def _one_of(*words: str) -> Callable[[str], bool]:
    return lambda value: value.lower() in words


def _anything(value: str) -> bool:
    return True


_SWITCHES = re.compile(
    r"""
    core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks
        |autocrlf|safecrlf|eol|abbrev|compression|untrackedcache|preloadindex|quotepath
        |sparsecheckout|sparsecheckoutcone|longpaths|whitespace|multipackindex
        |commitgraph|splitindex)
    |extensions\.(?:objectformat|worktreeconfig|partialclone|refstorage|noop|preciousobjects|relativeworktrees)
    |user\.(?:name|email|signingkey|useconfigonly)
    |author\.(?:name|email)
    |committer\.(?:name|email)
    |commit\.(?:gpgsign|verbose|cleanup|status)
    |tag\.(?:gpgsign|sort|forcesignannotated)
    |init\.(?:defaultbranch)
    |pull\.(?:rebase|ff)
    |push\.(?:default|autosetupremote|followtags|recursesubmodules)
    |fetch\.(?:prune|prunetags|recursesubmodules|parallel|unpacklimit)
    |merge\.(?:ff|conflictstyle|renames|renamelimit|directoryrenames|log|stat)
    |rebase\.(?:autosquash|autostash|stat|updaterefs|abbreviatecommands)
    |rerere\.(?:enabled|autoupdate)
    |diff\.(?:algorithm|renames|renamelimit|colormoved|noprefix|mnemonicprefix|submodule|context
        |ignoresubmodules|indentheuristic)
    |status\.(?:short|branch|showuntrackedfiles|submodulesummary)
    |log\.(?:date|decorate|follow|abbrevcommit)
    |gc\.(?:auto|autodetach|pruneexpire|reflogexpire)
    |pack\.(?:threads|window|depth)
    |index\.(?:version|threads|sparse|skiphash)
    |checkout\.(?:defaultremote|workers)
    |clone\.(?:defaultremotename)
    |submodule\.(?:active|recurse)
    |feature\.(?:manyfiles)
    |maintenance\.(?:auto|strategy)
    |receive\.(?:denycurrentbranch|denynonfastforwards)
    |uploadpack\.(?:allowfilter|allowanysha1inwant)
    |i18n\.(?:commitencoding|logoutputencoding)
    |lfs\.(?:repositoryformatversion)
    |blame\.(?:ignorerevsfile)
    |branch\.(?:autosetupmerge|autosetuprebase|sort)
    """,
    re.VERBOSE,
)
_BY_VALUE: dict[str, Callable[[str], bool]] = {
    # Without these a checkout may write names that other file systems treat as `.git`.
    **dict.fromkeys(("core.protectntfs", "core.protecthfs"), _one_of("true", "yes", "on", "1", "")),
    # Other values could let other users write files that git reads.
    "core.sharedrepository": _one_of("true", "false", "group", "umask", "all", "world", "everybody", "0", "1", "2"),
}
_UNDER_A_NAME: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("remote.url", "remote.pushurl", "submodule.url"), _needs_no_helper),
    **dict.fromkeys(("remote.fetch", "remote.push", "remote.mirror", "remote.tagopt", "remote.prune"), _anything),
    **dict.fromkeys(("remote.prunetags", "remote.promisor", "remote.partialclonefilter"), _anything),
    **dict.fromkeys(("remote.skipfetchall", "remote.skipdefaultupdate", "remote.gh-resolved"), _anything),
    **dict.fromkeys(("branch.merge", "branch.rebase", "branch.description"), _anything),
    **dict.fromkeys(("branch.vscode-merge-base", "branch.remote", "branch.pushremote"), _needs_no_helper),
    **dict.fromkeys(("submodule.active", "submodule.branch", "submodule.ignore", "submodule.shallow"), _anything),
    **dict.fromkeys(("submodule.path", "submodule.fetchrecursesubmodules"), _anything),
    "submodule.update": _one_of("checkout", "rebase", "merge", "none"),
    # Exactly what `git lfs install --local` writes.
    "filter.lfs.clean": _one_of("git-lfs clean -- %f"),
    "filter.lfs.smudge": _one_of("git-lfs smudge -- %f", "git-lfs smudge --skip -- %f"),
    "filter.lfs.process": _one_of("git-lfs filter-process", "git-lfs filter-process --skip"),
    "filter.lfs.required": _anything,
}
_OF_COLOURS = frozenset({"color", "column", "advice"})


def is_harmless(setting: Setting, is_inside: Callable[[str], bool]) -> bool:
    """Whether the setting starts no program and makes git write nowhere else.

    `is_inside` returns whether a work tree's folder is within the write roots.
    """
    section, subsection, name, value = setting
    value = value or ""
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", f"{subsection or ''}{value}"):
        return False
    if section in _OF_COLOURS:
        return True
    if subsection is None:
        if (section, name) == ("core", "worktree"):
            return is_inside(value)
        if section == "options":  # of an unfinished cherry-pick: git runs `git-merge-STRATEGY`
            return name != "strategy" or value in STRATEGIES
        known = _BY_VALUE.get(f"{section}.{name}")
        return known(value) if known is not None else bool(_SWITCHES.fullmatch(f"{section}.{name}"))
    known = _UNDER_A_NAME.get(f"{section}.{name}") or _UNDER_A_NAME.get(f"{section}.{subsection}.{name}")
    return known is not None and known(value)
