"""The credentials that are hidden from commands and file tools, and what of a home folder commands may read.

One table: each row has the default place of a credential, the variable that moves it, and the secret files in it. Also
the histories of typed text, browser profiles and our own files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_OWN = (".config/swink", ".config/swink-agent", ".local/share/swink-agent", ".local/state/swink-agent")
"""Our own keys, settings and sessions."""
_OWN_ON_MAC = ("Library/Application Support/swink-agent",)
_OWN_VARIABLES = ("SWINK_CONFIG_DIR", "SWINK_DATA_DIR")
_OWN_FILES = ("keys.json", "config.toml", "trusted.json", "trusted", "allowed.json", "folders.json")


class Credential(NamedTuple):
    """One credential: hidden at `place` in the home folder, and where `variable` moves it.

    `files` are the secret files if it is a folder. The whole folder is hidden, but only these files where the variable
    names a home folder or the working folder, and everywhere if `others` are of use to commands.
    """

    place: str = ""
    variable: str = ""
    files: tuple[str, ...] = ()
    others: bool = False

    def at(self, folder: str, *, holds_more: bool) -> Iterator[str]:
        """The paths to hide if it is at `folder`. `holds_more`: other things are there too."""
        if self.others or (holds_more and self.files):
            yield from (os.path.normpath(os.path.join(folder, name)) for name in self.files)
        else:
            yield folder


CREDENTIALS: tuple[Credential, ...] = (
    # clouds and clusters
    Credential(".aws"),
    Credential(".aws/credentials", "AWS_SHARED_CREDENTIALS_FILE"),
    Credential(".aws/config", "AWS_CONFIG_FILE"),
    Credential("", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    Credential("", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    Credential(
        ".config/gcloud",
        "CLOUDSDK_CONFIG",
        ("credentials.db", "access_tokens.db", "application_default_credentials.json", "legacy_credentials"),
    ),
    Credential("", "GOOGLE_APPLICATION_CREDENTIALS"),
    Credential("", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"),
    Credential(
        ".azure",
        "AZURE_CONFIG_DIR",
        ("msal_token_cache.json", "msal_token_cache.bin", "accessTokens.json", "service_principal_entries.json"),
    ),
    Credential("", "AZURE_FEDERATED_TOKEN_FILE"),
    Credential("", "AZURE_CLIENT_CERTIFICATE_PATH"),
    Credential(".oci"),
    Credential(".oci/config", "OCI_CLI_CONFIG_FILE"),
    Credential("", "OCI_CONFIG_FILE"),
    Credential(".bluemix"),
    Credential(".fly"),
    Credential(".terraform.d"),
    Credential(".terraformrc", "TF_CLI_CONFIG_FILE"),
    Credential(".vault-token", "VAULT_TOKEN_FILE"),
    Credential(".vault", "VAULT_CONFIG_PATH"),
    Credential("", "VAULT_CLIENT_KEY"),
    Credential("", "CONSUL_HTTP_TOKEN_FILE"),
    Credential("", "NOMAD_CLIENT_KEY"),
    Credential(".databrickscfg", "DATABRICKS_CONFIG_FILE"),
    Credential(".snowflake", "SNOWFLAKE_HOME", ("connections.toml", "config.toml")),
    Credential(".kube"),
    Credential(".kube/config", "KUBECONFIG"),
    Credential(".minikube", "MINIKUBE_HOME", ("client.key", "ca.key", "profiles"), others=True),
    Credential(".boto", "BOTO_CONFIG"),
    Credential(".s3cfg"),
    Credential(".config/doctl"),
    Credential(".config/rclone"),
    Credential(".config/rclone/rclone.conf", "RCLONE_CONFIG"),
    Credential(".config/stripe"),
    Credential(".config/heroku"),
    Credential(".config/hcloud"),
    Credential(".config/hcloud/cli.toml", "HCLOUD_CONFIG"),
    Credential(".config/argocd", "ARGOCD_CONFIG_DIR", ("config",)),
    Credential(".config/.wrangler"),
    Credential(".wrangler"),
    Credential(".local/share/com.vercel.cli"),
    Credential(".railway"),
    Credential(".pulumi", "PULUMI_HOME", ("credentials.json",), others=True),
    Credential(".kaggle", "KAGGLE_CONFIG_DIR", ("kaggle.json",)),
    Credential("", "ANSIBLE_VAULT_PASSWORD_FILE"),
    # registries, repositories, the web
    Credential(".npmrc", "NPM_CONFIG_USERCONFIG"),
    Credential(".npmrc", "npm_config_userconfig"),
    Credential("", "NPM_CONFIG_GLOBALCONFIG"),
    Credential(".yarnrc.yml"),
    Credential(".pypirc"),
    Credential(".config/pip/pip.conf", "PIP_CONFIG_FILE"),
    Credential(".pip/pip.conf"),
    Credential(".config/pypoetry", "POETRY_CONFIG_DIR", ("auth.toml",), others=True),
    Credential(".local/share/uv/credentials", "UV_CREDENTIALS_DIR"),
    Credential(".gem/credentials"),
    Credential(".bundle/config", "BUNDLE_USER_CONFIG"),
    Credential(".bundle", "BUNDLE_USER_HOME", ("config",), others=True),
    Credential(".cargo", "CARGO_HOME", ("credentials", "credentials.toml"), others=True),
    Credential(".m2", "", ("settings.xml", "settings-security.xml"), others=True),
    Credential(".gradle", "GRADLE_USER_HOME", ("gradle.properties",), others=True),
    Credential(".ivy2/.credentials"),
    Credential(".nuget/NuGet/NuGet.Config"),
    Credential(".composer", "COMPOSER_HOME", ("auth.json",), others=True),
    Credential(".config/composer/auth.json"),
    Credential(".docker", "DOCKER_CONFIG", ("config.json", "contexts")),
    Credential("", "DOCKER_CERT_PATH"),
    Credential(".config/containers/auth.json", "REGISTRY_AUTH_FILE"),
    Credential(".config/helm", "HELM_CONFIG_HOME", ("registry",), others=True),
    Credential(".config/helm/registry/config.json", "HELM_REGISTRY_CONFIG"),
    Credential(".cache/huggingface", "HF_HOME", ("token", "stored_tokens"), others=True),
    Credential(".cache/huggingface/hub", "HUGGINGFACE_HUB_CACHE", ("../token",), others=True),
    Credential(".cache/huggingface/token", "HF_TOKEN_PATH"),
    Credential(".cache/huggingface/stored_tokens", "HF_STORED_TOKENS_PATH"),
    Credential(".huggingface/token"),
    Credential(".git-credentials"),
    Credential(".config/git/credentials"),
    Credential(".config/gh", "GH_CONFIG_DIR", ("hosts.yml",)),
    Credential(".config/glab-cli", "GLAB_CONFIG_DIR", ("config.yml",)),
    Credential(".config/hub"),
    Credential(".config/github-copilot"),
    Credential(".subversion/auth"),
    Credential(".netrc", "NETRC"),
    Credential("_netrc"),
    Credential(".authinfo"),
    Credential(".authinfo.gpg"),
    Credential(".wgetrc", "WGETRC"),
    Credential("", "CURL_HOME", (".netrc", ".curlrc"), others=True),
    Credential(".curlrc"),
    # keys, passwords and money
    Credential(".ssh"),
    Credential(".gnupg", "GNUPGHOME", ("private-keys-v1.d", "secring.gpg")),
    Credential(".password-store", "PASSWORD_STORE_DIR"),
    Credential(".local/share/keyrings"),
    Credential(".pki"),
    Credential(".config/op"),
    Credential(".config/sops"),
    Credential(".config/sops/age/keys.txt", "SOPS_AGE_KEY_FILE"),
    Credential(".config/age"),
    Credential("", "KRB5CCNAME"),
    Credential("", "KRB5_KTNAME"),
    Credential("", "KRB5_CLIENT_KTNAME"),
    Credential(".bitcoin"),
    Credential(".config/solana/id.json"),
    # databases
    Credential(".pgpass", "PGPASSFILE"),
    Credential(".postgresql/postgresql.key", "PGSSLKEY"),
    Credential(".my.cnf"),
    Credential(".mylogin.cnf", "MYSQL_TEST_LOGIN_FILE"),
    # other agents
    Credential(".claude", "CLAUDE_CONFIG_DIR", (".credentials.json",)),
    Credential(".claude.json"),
    Credential(".codex", "CODEX_HOME", ("auth.json",)),
    Credential(".gemini"),
    Credential(".local/share/opencode/auth.json"),
    # our own files
    *map(Credential, _OWN),
    Credential("", "SWINK_CONFIG_DIR", _OWN_FILES),
    Credential("", "SWINK_DATA_DIR"),
    # histories of typed text
    Credential(".bash_history", "HISTFILE"),
    Credential("", "ZDOTDIR", (".zsh_history", ".zhistory"), others=True),
    *map(Credential, (".zsh_history", ".zhistory", ".histfile", ".local/share/fish", ".viminfo")),
    Credential(".python_history", "PYTHON_HISTORY"),
    Credential(".node_repl_history", "NODE_REPL_HISTORY"),
    Credential(".psql_history", "PSQL_HISTORY"),
    Credential(".mysql_history", "MYSQL_HISTFILE"),
    Credential(".sqlite_history", "SQLITE_HISTORY"),
    Credential(".rediscli_history", "REDISCLI_HISTFILE"),
    Credential(".lesshst", "LESSHISTFILE"),
    # browsers
    *map(
        Credential, (".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware")
    ),
    *map(Credential, (".config/microsoft-edge", ".config/vivaldi", ".config/opera", "snap/firefox", "snap/chromium")),
    *map(Credential, (".var/app/org.mozilla.firefox", ".var/app/com.google.Chrome", ".var/app/org.chromium.Chromium")),
    Credential("", "XDG_RUNTIME_DIR"),
)

_ON_MAC = (
    *("Library/Keychains", "Library/Cookies", "Library/Safari", "Library/Mail", "Library/Messages"),
    *("Library/Containers/com.apple.Safari", *_OWN_ON_MAC),
    *("Library/Application Support/Google/Chrome", "Library/Application Support/Firefox"),
    *("Library/Application Support/Chromium", "Library/Application Support/BraveSoftware"),
    *("Library/Application Support/Microsoft Edge", "Library/Application Support/Arc"),
    *("Library/Application Support/1Password", "Library/Group Containers/2BUA8C4S2C.com.1password"),
)
_IN_SYSTEM = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d"),
    *("/etc/security/opasswd", "/etc/ssl/private", "/etc/krb5.keytab", "/etc/ssh/ssh_host_rsa_key"),
    *("/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_dsa_key"),
    # sockets of daemons with more rights than their caller, and secrets of services
    *("/run/user", "/run/docker.sock", "/run/docker", "/run/containerd", "/run/podman", "/run/crio", "/run/dbus"),
    *("/run/secrets", "/run/credentials", "/run/libvirt", "/run/snapd.socket", "/run/systemd/private"),
    *("/var/run/docker.sock", "/var/run/secrets", "/var/spool/cron", "/var/lib/docker"),
)
_MOVED_BY_XDG = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
}
_GIT_SETTINGS = (".gitconfig", ".config/git/config")
"""Git's own settings, which commands need. They are hidden as a whole if they hold a credential."""
_LARGEST_SETTINGS = 1024 * 1024
_IN_GIT_SETTINGS = re.compile(
    r"^\s*extraheader\s*=|\w+://[^/\s@:]*:[^/\s@]+@|^\s*(smtppass|password|token|secret|oauth\w*)\s*=",
    re.IGNORECASE | re.MULTILINE,
)


def default_hidden(home: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The paths of credentials, browser profiles and our own files, existing or not.

    In the home folder, in the system, and where the variables of `environ` (by default this process's) moved them.
    Git's settings are among them only if they hold a credential now.
    """
    home = os.path.abspath(os.fspath(home))
    environ = os.environ if environ is None else environ
    names = [path for row in CREDENTIALS if row.place for path in row.at(row.place, holds_more=False)]
    names += _ON_MAC if sys.platform == "darwin" else ()
    at_home = (os.path.join(home, name) for name in names)
    moved = (*_moved_by_xdg(names, environ), *_moved(home, environ), *_git_settings(home, environ))
    return _outermost((*at_home, *_IN_SYSTEM, *moved))


def own_hidden(home: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The hidden paths of this program itself, in the home folder and where variables moved them, existing or not."""
    home = os.path.abspath(os.fspath(home))
    environ = os.environ if environ is None else environ
    names = _OWN + _OWN_ON_MAC
    moved = [place for name in _OWN_VARIABLES if (place := _place(environ.get(name, ""), home))]
    at_home = (os.path.join(home, name) for name in names)
    return tuple(dict.fromkeys((*at_home, *_moved_by_xdg(names, environ), *moved)))


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that are not in another one: whoever opens a folder by its name opens what is in it."""
    found: list[str] = []
    for path in sorted(dict.fromkeys(paths), key=lambda path: path.split(os.path.sep)):
        if not found or not f"{path}{os.path.sep}".startswith(f"{found[-1]}{os.path.sep}"):
            found.append(path)
    return tuple(found)


def _moved_by_xdg(names: Iterable[str], environ: Mapping[str, str]) -> Iterator[str]:
    for variable, usual in _MOVED_BY_XDG.items():
        folder = environ.get(variable, "")
        if not os.path.isabs(folder):  # the standard ignores relative paths
            continue
        for name in names:
            if name.startswith(f"{usual}/"):
                yield os.path.normpath(os.path.join(folder, name[len(usual) + 1 :]))
        yield os.path.join(folder, "swink-agent")
        yield os.path.join(folder, "swink")


def _moved(home: str, environ: Mapping[str, str]) -> Iterator[str]:
    for row in CREDENTIALS:
        for path in environ.get(row.variable, "").split(os.pathsep) if row.variable else ():
            if place := _place(path.removeprefix("FILE"), home):
                yield from row.at(place, holds_more=bool(row.files) and _holds_other_things(place, home))


def _git_settings(home: str, environ: Mapping[str, str]) -> Iterator[str]:
    """The files of git's settings that hold a credential: a header, a password in an address, or one by its name."""
    others = environ.get("XDG_CONFIG_HOME", "")
    places = [os.path.join(home, name) for name in _GIT_SETTINGS]
    places += [os.path.join(others, "git/config")] if os.path.isabs(others) else []
    places += [place] if (place := _place(environ.get("GIT_CONFIG_GLOBAL", ""), home)) else []
    for path in dict.fromkeys(places):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                if _IN_GIT_SETTINGS.search(file.read(_LARGEST_SETTINGS)):
                    yield path
        except OSError:
            continue


def _place(path: str, home: str) -> str:
    """The path as a program would read it, or an empty text if it cannot be hidden."""
    if not path or "\0" in path:
        return ""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    try:
        place = os.path.abspath(path)
    except OSError:  # relative to a folder that was deleted
        return ""
    nothing = ("/", "/dev", "/proc", "/sys", "/etc", "/usr")
    return "" if place in (*nothing, home) or place.startswith(("/dev/", "/proc/")) else place


def _holds_other_things(folder: str, home: str) -> bool:
    """Whether hiding the whole folder would hide too much: a home, or the working folder."""
    try:
        here = os.getcwd()
    except OSError:
        here = home
    inside = folder.rstrip("/") + "/"
    return any(f"{place}/".startswith(inside) for place in (home, here, os.path.realpath(here), os.path.dirname(home)))
