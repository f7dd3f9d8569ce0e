"""Lists the paths of credentials, browser profiles and our own keys, which the back ends hide.

They are in a home folder, in the system, and where environment variables moved them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

_OWN_IN_HOME = (".config/swink", ".config/swink-agent", ".local/share/swink-agent", ".local/state/swink-agent")
"""Our own keys, settings and sessions."""
_OWN_IN_MAC_HOME = ("Library/Application Support/swink-agent",)
_OWN_VARIABLES = ("SWINK_CONFIG_DIR", "SWINK_DATA_DIR")

_HIDDEN_IN_HOME = (
    # keys and the credentials of clouds, registries and databases
    *(".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".pki", ".netrc", "_netrc", ".authinfo"),
    *(".aws", ".azure", ".kube", ".docker", ".oci", ".bluemix", ".fly", ".terraform.d", ".terraformrc", ".vault-token"),
    *(".config/gcloud", ".config/gh", ".config/glab-cli", ".config/hub", ".config/op", ".config/doctl"),
    *(".config/rclone", ".config/containers/auth.json", ".config/github-copilot", ".config/sops", ".config/age"),
    *(".boto", ".s3cfg", ".git-credentials", ".config/git/credentials", ".npmrc", ".yarnrc.yml", ".pypirc"),
    *(".gem/credentials", ".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml"),
    ".m2/settings-security.xml",
    *(".gradle/gradle.properties", ".composer/auth.json", ".config/composer/auth.json", ".databrickscfg", ".snowflake"),
    *(".pgpass", ".my.cnf", ".mylogin.cnf", ".huggingface/token", ".cache/huggingface/token"),
    # other agents
    *(".claude", ".claude.json", ".codex", ".gemini"),
    *_OWN_IN_HOME,
    # histories of typed text, and browsers
    *(".bash_history", ".zsh_history", ".zhistory", ".histfile", ".local/share/fish", ".python_history"),
    *(".node_repl_history", ".psql_history", ".mysql_history", ".sqlite_history", ".lesshst", ".viminfo"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
    *(".config/microsoft-edge", ".config/vivaldi", ".config/opera", "snap/firefox", "snap/chromium"),
    *(".var/app/org.mozilla.firefox", ".var/app/com.google.Chrome", ".var/app/org.chromium.Chromium"),
)
_HIDDEN_IN_MAC_HOME = (
    *("Library/Keychains", "Library/Cookies", "Library/Safari", "Library/Mail", "Library/Messages"),
    *("Library/Containers/com.apple.Safari", *_OWN_IN_MAC_HOME),
    *("Library/Application Support/Google/Chrome", "Library/Application Support/Firefox"),
    *("Library/Application Support/Chromium", "Library/Application Support/BraveSoftware"),
    *("Library/Application Support/Microsoft Edge", "Library/Application Support/Arc"),
    *("Library/Application Support/1Password", "Library/Group Containers/2BUA8C4S2C.com.1password"),
)
_HIDDEN_IN_SYSTEM = (
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

_FILES_BY_VARIABLE = (
    # clouds and clusters
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "KUBECONFIG", "BOTO_CONFIG"),
    *("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_CERTIFICATE_PATH"),
    *("OCI_CLI_CONFIG_FILE", "OCI_CONFIG_FILE"),
    *("TF_CLI_CONFIG_FILE", "VAULT_TOKEN_FILE", "VAULT_CONFIG_PATH", "VAULT_CLIENT_KEY", "CONSUL_HTTP_TOKEN_FILE"),
    *("NOMAD_CLIENT_KEY", "DATABRICKS_CONFIG_FILE", "RCLONE_CONFIG", "ANSIBLE_VAULT_PASSWORD_FILE"),
    # registries, repositories, the web
    *("NPM_CONFIG_USERCONFIG", "npm_config_userconfig", "NPM_CONFIG_GLOBALCONFIG", "PIP_CONFIG_FILE", "NETRC"),
    *("WGETRC", "GIT_CONFIG_GLOBAL", "REGISTRY_AUTH_FILE", "HELM_REGISTRY_CONFIG", "BUNDLE_USER_CONFIG"),
    *("HF_TOKEN_PATH", "HF_STORED_TOKENS_PATH", "DOCKER_CERT_PATH"),
    # keys, databases and histories
    *("SOPS_AGE_KEY_FILE", "KRB5CCNAME", "KRB5_KTNAME", "KRB5_CLIENT_KTNAME", "PGPASSFILE", "PGSSLKEY"),
    *("MYSQL_TEST_LOGIN_FILE", "HISTFILE", "LESSHISTFILE", "PYTHON_HISTORY", "NODE_REPL_HISTORY", "PSQL_HISTORY"),
    *("MYSQL_HISTFILE", "SQLITE_HISTORY", "REDISCLI_HISTFILE"),
)
"""Variables that name a file of credentials, or several of them."""

_FOLDERS_BY_VARIABLE: dict[str, tuple[str, ...]] = {
    "CLOUDSDK_CONFIG": (
        *("credentials.db", "access_tokens.db", "application_default_credentials.json", "legacy_credentials"),
    ),
    "AZURE_CONFIG_DIR": (
        *("msal_token_cache.json", "msal_token_cache.bin", "accessTokens.json", "service_principal_entries.json"),
    ),
    "DOCKER_CONFIG": ("config.json", "contexts"),
    "GNUPGHOME": ("private-keys-v1.d", "secring.gpg"),
    "PASSWORD_STORE_DIR": (),
    "SNOWFLAKE_HOME": ("connections.toml", "config.toml"),
    "GH_CONFIG_DIR": ("hosts.yml",),
    "GLAB_CONFIG_DIR": ("config.yml",),
    "HELM_CONFIG_HOME": ("registry",),
    "POETRY_CONFIG_DIR": ("auth.toml",),
    "UV_CREDENTIALS_DIR": (),
    "CLAUDE_CONFIG_DIR": (".credentials.json",),
    "CODEX_HOME": ("auth.json",),
    "SWINK_CONFIG_DIR": ("keys.json", "config.toml", "trusted.json", "trusted", "allowed.json", "folders.json"),
    "SWINK_DATA_DIR": (),
    "XDG_RUNTIME_DIR": (),
}
"""Variables that name a folder of credentials, and its secret files: only these are hidden if it contains a home folder
or the working folder."""

_FILES_IN_FOLDERS: dict[str, tuple[str, ...]] = {
    "CARGO_HOME": ("credentials", "credentials.toml"),
    "HF_HOME": ("token", "stored_tokens"),
    "HUGGINGFACE_HUB_CACHE": ("../token",),
    "COMPOSER_HOME": ("auth.json",),
    "GRADLE_USER_HOME": ("gradle.properties",),
    "PULUMI_HOME": ("credentials.json",),
    "CURL_HOME": (".netrc", ".curlrc"),
    "ZDOTDIR": (".zsh_history", ".zhistory"),
}
"""Variables that name a folder of which only these files are credentials."""

_NOT_SECRET = (".gitconfig", ".config/git/config")
"""If a variable names one of these, it has moved nothing."""


def default_hidden(home: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The paths of credentials, browser profiles and our own keys, existing or not.

    In the home folder, in the system, and where the variables of `environ` (by default this process's) moved them.
    """
    home = os.path.abspath(os.fspath(home))
    names = _HIDDEN_IN_HOME + (_HIDDEN_IN_MAC_HOME if sys.platform == "darwin" else ())
    environ = os.environ if environ is None else environ
    at_home = (os.path.join(home, name) for name in names)
    moved = (*_moved_by_xdg(names, environ), *_moved(home, environ))
    return tuple(dict.fromkeys((*at_home, *_HIDDEN_IN_SYSTEM, *moved)))


def own_hidden(home: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The hidden paths of this program itself, in the home folder and where variables moved them, existing or not."""
    home = os.path.abspath(os.fspath(home))
    environ = os.environ if environ is None else environ
    names = _OWN_IN_HOME + _OWN_IN_MAC_HOME
    moved = [place for name in _OWN_VARIABLES if (place := _place(environ.get(name, ""), home))]
    at_home = (os.path.join(home, name) for name in names)
    return tuple(dict.fromkeys((*at_home, *_moved_by_xdg(names, environ), *moved)))


def _moved_by_xdg(names: tuple[str, ...], environ: Mapping[str, str]) -> Iterator[str]:
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
    for variable in _FILES_BY_VARIABLE:
        for path in environ.get(variable, "").split(os.pathsep):
            place = _place(path.removeprefix("FILE"), home)
            if place and not any(place == os.path.join(home, name) for name in _NOT_SECRET):
                yield place
    for variable, files in _FOLDERS_BY_VARIABLE.items():
        if folder := _place(environ.get(variable, ""), home):
            if _holds_other_things(folder, home):
                yield from (os.path.join(folder, name) for name in files)
            else:
                yield folder
    for variable, files in _FILES_IN_FOLDERS.items():
        if folder := _place(environ.get(variable, ""), home):
            yield from (os.path.normpath(os.path.join(folder, name)) for name in files)


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
