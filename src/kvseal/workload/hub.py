# SPDX-License-Identifier: Apache-2.0
"""Prompts from a Hugging Face dataset at one commit, through the `datasets` package.

Named `owner/name`, or with its columns and split
`owner/name:prompt=question,answer=target,split=test`. Unnamed, the columns are
`prompt` and `answer` and the split is `train`, as KNLP's harness reads its
default dataset. An answer is a text or a list of texts, any of which is right.
The first rows are taken, in order. The commit must be whole (40 hexadecimal
digits): a branch could change under a recorded result.
"""

from __future__ import annotations

import re

from kvseal.errors import OptionError, PrerequisiteError
from kvseal.workload.file import answers
from kvseal.workload.prompt import Prompt, Tokenizer

OPTION = "WORKFLOW_KNLP_LMCACHE_SNAPKV_DATASET_HUB"
KIND = "hub"
DEFAULTS = {"prompt": "prompt", "answer": "answer", "split": "train"}


def parse_hub(name: str) -> tuple[str, dict[str, str]]:
    """Return the dataset's name, and its columns and split.

    Raises:
        OptionError: for an unknown or repeated setting, or an empty one.
    """
    dataset, _, text = name.partition(":")
    given: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in DEFAULTS or key in given or not value:
            raise OptionError(
                "unknown, repeated or empty setting of a hub dataset",
                option=OPTION,
                value=part,
                expected="prompt=COLUMN, answer=COLUMN or split=NAME, each once",
            )
        given[key] = value
    return dataset, DEFAULTS | given


def prompts_from_hub(
    name: str, revision: str, *, prompts: int, tokenizer: Tokenizer
) -> list[Prompt]:
    """Return the first `prompts` rows of the dataset as prompts.

    Raises:
        OptionError: a mutable revision, columns that are not there, too few rows.
        PrerequisiteError: `datasets` is not installed, or the hub can't be reached.
    """
    dataset, setting = parse_hub(name)
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise OptionError(
            "the dataset's revision can change under a recorded result",
            option="WORKFLOW_KNLP_LMCACHE_SNAPKV_DATASET_REVISION",
            value=revision,
            expected="the commit of the dataset's repository, 40 hexadecimal digits",
            remedy=f"look up the commit of {dataset} on its hub page",
        )
    try:
        from datasets import load_dataset
    except ImportError:
        raise PrerequisiteError(
            "a hub dataset needs the `datasets` package",
            option=OPTION,
            value=name,
            remedy="install `datasets` into the engine environment, or export the rows to a file "
            'of JSON lines {"prompt", "answers"} and name it in '
            "WORKFLOW_KNLP_LMCACHE_SNAPKV_DATASET_FILE",
        ) from None
    try:
        rows = load_dataset(dataset, revision=revision, split=setting["split"])
    except (OSError, ValueError, RuntimeError) as error:
        raise PrerequisiteError(
            f"the hub dataset can't be loaded: {error}",
            option=OPTION,
            value=f"{name} at {revision}",
            remedy="check name, commit and split, and that the hub can be reached or the dataset "
            "is in the local cache",
        ) from None
    columns = (setting["prompt"], setting["answer"])
    if not set(columns) <= set(rows.column_names):
        raise OptionError(
            f"the dataset has the columns {', '.join(rows.column_names)}",
            option=OPTION,
            value=name,
            expected=" and ".join(columns),
            remedy=f"name them: {dataset}:prompt=COLUMN,answer=COLUMN",
        )
    if len(rows) < prompts:
        raise OptionError(
            f"the dataset has {len(rows)} rows",
            option="WORKFLOW_KNLP_LMCACHE_SNAPKV_NUM_PROMPTS",
            value=prompts,
            expected=f"at most {len(rows)}",
        )
    made = []
    for index in range(prompts):
        text, expected = rows[index][columns[0]], answers(rows[index][columns[1]])
        if not isinstance(text, str) or not text or expected is None:
            raise OptionError(
                f"row {index} of the dataset is not a prompt with an answer",
                option=OPTION,
                value=name,
                expected=f"text in {columns[0]}, text or a list of texts in {columns[1]}",
            )
        token_ids = tuple(tokenizer.encode(text))
        made.append(Prompt(index, dataset, text, token_ids, tuple(expected), KIND))
    return made
