# SPDX-License-Identifier: Apache-2.0
"""What the probes ask of a tokenizer, and the model's own one by way of transformers.

Probes are made in token IDs, so text becomes tokens here and nowhere else. It
reads a local directory and neither downloads nor runs code that it brings;
transformers is imported only when `load_tokenizer` is called, by the driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from kvseal.errors import OptionError, PrerequisiteError

MARKER = "kvseal0user0content0kvseal"
"""Stands for the user's content while a chat template is taken apart."""


class ProbeTokenizer(Protocol):
    """Text to token IDs, and the IDs that belong around a prompt."""

    def encode(self, text: str) -> list[int]:
        """Return the token IDs of `text` alone, with no special tokens added."""
        ...

    def chat_frame(self) -> tuple[list[int], list[int]]:
        """Return the IDs before and after the user's content, generation prompt included.

        Raises:
            OptionError: naming --prompt-format, when the model has no chat template.
        """
        ...

    def bos(self) -> list[int]:
        """Return the IDs that open a raw prompt: the beginning-of-text token or nothing."""
        ...


class ModelTokenizer:
    """A ProbeTokenizer over a transformers tokenizer; `path` is named in errors."""

    def __init__(self, tokenizer: Any, path: Path, *, prompt_format: str = "chat") -> None:
        self._tokenizer = tokenizer
        self._path = path
        self._prompt_format = prompt_format

    def encode(self, text: str) -> list[int]:
        """Return the token IDs of `text` alone, with no special tokens added."""
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=False)]

    def bos(self) -> list[int]:
        """Return the beginning-of-text token if this tokenizer puts one before a text.

        Many tokenizers name such a token and never add it, so what counts is
        what it does to a text.
        """
        first = self._tokenizer.bos_token_id
        added = self._tokenizer.encode("a", add_special_tokens=True)
        if first is None or added[:1] != [first] or self.encode("a")[:1] == [first]:
            return []
        return [int(first)]

    def chat_frame(self) -> tuple[list[int], list[int]]:
        """Return the IDs before and after the user's content in the model's chat template.

        The template writes its own special tokens, so none are added.

        Raises:
            OptionError: when there is no template, it fails on one user message,
                or it does not put the content through once and unchanged.
        """
        if not getattr(self._tokenizer, "chat_template", None):
            raise self._unusable("the model has no chat template")
        # A template is a program of the model's author and can fail in any way.
        try:
            text = self._tokenizer.apply_chat_template(
                [{"role": "user", "content": MARKER}], tokenize=False, add_generation_prompt=True
            )
        except Exception as error:
            raise self._unusable(f"the model's chat template fails: {error}") from error
        parts = text.split(MARKER)
        if len(parts) != 2:
            raise self._unusable(
                f"the model's chat template holds the user's content {len(parts) - 1} times"
            )
        return self.encode(parts[0]), self.encode(parts[1])

    def _unusable(self, message: str) -> OptionError:
        return OptionError(
            f"{message} ({self._path})",
            option="--prompt-format",
            value=self._prompt_format,
            expected="raw, or a model whose chat template takes one user message",
            remedy="use --prompt-format raw, or a tokenizer with a chat template",
        )


def load_tokenizer(
    path: Path, *, prompt_format: str = "chat", option: str = "--tokenizer"
) -> ModelTokenizer:
    """Return the tokenizer in the directory `path`.

    `prompt_format` is what the user asked for and `option` where `path` came
    from; both are only named in errors.

    Raises:
        OptionError: when `path` holds no tokenizer that transformers can load.
        PrerequisiteError: when transformers is not installed.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise PrerequisiteError(
            "a model's tokenizer can't be loaded without the transformers package",
            remedy="run this in the engine environment, where vLLM brings it",
        ) from None
    # What a damaged tokenizer raises is whatever its loader happens to trip over.
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(path), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise OptionError(
            f"no tokenizer can be loaded: {error}"[:600],
            option=option,
            value=str(path),
            expected="a directory with tokenizer.json and tokenizer_config.json",
            remedy="name the model's tokenizer with --tokenizer, or complete the directory",
        ) from error
    return ModelTokenizer(tokenizer, path, prompt_format=prompt_format)
