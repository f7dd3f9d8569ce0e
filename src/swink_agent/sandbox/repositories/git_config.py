"""Git's configuration, as git itself reads it, and which of its settings do nothing but set.

Owns a parser, a writer, and the list of harmless settings. It is a list of what may stay: git has dozens of settings
that start a program (monitors, hooks, filters, drivers, helpers, pagers, editors, aliases, includes of all those), and
gets new ones. What is written here is plain, so that nobody can read it differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

__all__ = ["Setting", "is_harmless", "is_plain", "read_settings", "written"]

LARGEST = 1024 * 1024
STRATEGIES = frozenset({"", "ort", "recursive", "resolve", "octopus", "ours", "subtree"})
"""How git itself merges."""


class Setting(NamedTuple):
    """One setting. `section` and `name` are in lower case; `value` is `None` where only the name is there."""

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
    """The settings, and whether git would have read to the end. What comes after an error is left out, as git does."""
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
    """The value that begins there and where it ends, or -1 where it is none."""
    value: list[str] = []
    kept = 0  # what is beyond are spaces at the end, unless something follows
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


# -- what may stay -----------------------------------------------------------------------------------------------

_PLAIN_LINE = re.compile(
    r'[ \t]*(?:[#;].*|\[[A-Za-z0-9-]+(?: "[^"\\\[\]]*")?\]|[A-Za-z][A-Za-z0-9-]*(?: = (?![ \t])[^"\\#;]*)?)?', re.ASCII
)


def is_plain(text: str) -> bool:
    """Whether nobody could read it differently: one thing on each line, nothing escaped or odd."""
    return not re.search(r"[^\t\n\x20-\x7e\xa0-\U0010ffff]", text) and all(map(_PLAIN_LINE.fullmatch, text.split("\n")))


_ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git|file|git\+ssh|ssh\+git|ftps?)://(?!-)|(?!-)(?![^/]*:(?::|//)))", re.IGNORECASE
)


def _no_helper(value: str) -> bool:
    """A place that git fetches from by itself: not through a helper (`ext::`, `made-up://`), and no option."""
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
    # Without these a checkout may write names that other file systems take for `.git`.
    **dict.fromkeys(("core.protectntfs", "core.protecthfs"), _one_of("true", "yes", "on", "1", "")),
    # Not so that others may write what git reads.
    "core.sharedrepository": _one_of("true", "false", "group", "umask", "all", "world", "everybody", "0", "1", "2"),
}
_UNDER_A_NAME: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("remote.url", "remote.pushurl", "submodule.url"), _no_helper),
    **dict.fromkeys(("remote.fetch", "remote.push", "remote.mirror", "remote.tagopt", "remote.prune"), _anything),
    **dict.fromkeys(("remote.prunetags", "remote.promisor", "remote.partialclonefilter"), _anything),
    **dict.fromkeys(("remote.skipfetchall", "remote.skipdefaultupdate", "remote.gh-resolved"), _anything),
    **dict.fromkeys(("branch.merge", "branch.rebase", "branch.description"), _anything),
    **dict.fromkeys(("branch.vscode-merge-base", "branch.remote", "branch.pushremote"), _no_helper),
    **dict.fromkeys(("submodule.active", "submodule.branch", "submodule.ignore", "submodule.shallow"), _anything),
    **dict.fromkeys(("submodule.path", "submodule.fetchrecursesubmodules"), _anything),
    "submodule.update": _one_of("checkout", "rebase", "merge", "none"),
    # What `git lfs install --local` writes, to the letter.
    "filter.lfs.clean": _one_of("git-lfs clean -- %f"),
    "filter.lfs.smudge": _one_of("git-lfs smudge -- %f", "git-lfs smudge --skip -- %f"),
    "filter.lfs.process": _one_of("git-lfs filter-process", "git-lfs filter-process --skip"),
    "filter.lfs.required": _anything,
}
_OF_COLOURS = frozenset({"color", "column", "advice"})


def is_harmless(setting: Setting, is_inside: Callable[[str], bool]) -> bool:
    """Whether no program is started by it, nor files written elsewhere. `is_inside` says so of a work tree's place."""
    section, subsection, name, value = setting
    value = value or ""
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", f"{subsection or ''}{value}"):
        return False
    if section in _OF_COLOURS:
        return True
    if subsection is None:
        if (section, name) == ("core", "worktree"):
            return is_inside(value)
        if section == "options":  # of a cherry-pick on its way: git runs `git-merge-` and the strategy's name
            return name != "strategy" or value in STRATEGIES
        known = _BY_VALUE.get(f"{section}.{name}")
        return known(value) if known is not None else bool(_SWITCHES.fullmatch(f"{section}.{name}"))
    known = _UNDER_A_NAME.get(f"{section}.{name}") or _UNDER_A_NAME.get(f"{section}.{subsection}.{name}")
    return known is not None and known(value)


def written(settings: Iterable[Setting]) -> str:
    """The settings as a file that git, and everybody else, reads in one way."""
    lines: list[str] = []
    last: tuple[str, str | None] | None = None
    for setting in settings:
        if (heading := (setting.section, setting.subsection)) != last:
            inner = "" if setting.subsection is None else f' "{_in_quotes(setting.subsection)}"'
            lines.append(f"[{setting.section}{inner}]")
            last = heading
        value = _in_quotes("true" if setting.value is None else setting.value)
        lines.append(f'\t{setting.name} = "{value}"')
    return "".join(f"{line}\n" for line in lines)


def _in_quotes(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
