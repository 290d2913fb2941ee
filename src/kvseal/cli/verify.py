# SPDX-License-Identifier: Apache-2.0
"""`kvseal verify`: does reused KV give exactly the token IDs that recomputation gives?

Runs in the engine environment. Exit status: 0 when the completed checks passed,
1 when one failed, 2 for setup, execution or evidence failures. What to verify
comes from options, or from a run spec with --spec and --out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from kvseal.errors import EvidenceError, OptionError
from kvseal.spec import contracts, verify_request
from kvseal.spec.runspec import VerifySpec
from kvseal.spec.verify_request import VerifyRequest


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options; their values are checked together, in `run`."""
    model = parser.add_argument_group("model")
    model.add_argument("--model", metavar="NAME", help="hub repository or local directory")
    model.add_argument(
        "--model-revision",
        metavar="COMMIT",
        help="40-character commit; for a directory its sha256:… digest, or nothing",
    )
    model.add_argument("--tokenizer", metavar="NAME", help="default: the model's")
    model.add_argument("--tokenizer-revision", metavar="COMMIT", help="default: the model's")

    cache = parser.add_argument_group("cache under test")
    cache.add_argument(
        "--kv-connector",
        metavar="NAME",
        help="LMCacheConnectorV1, LMCacheMPConnector (contract mp) or none",
    )
    cache.add_argument(
        "--evidence-contract",
        default="strict",
        metavar="NAME",
        help=f"{', '.join(contracts.CONTRACTS)} (default: strict); the claim that a pass makes",
    )
    cache.add_argument("--lmcache-config", type=Path, metavar="FILE", help="LMCache's YAML")
    cache.add_argument(
        "--native-prefix-caching",
        action=argparse.BooleanOptionalAction,
        help="with --kv-connector none (default: on); off leaves the control alone",
    )
    cache.add_argument(
        "--compare-native",
        action="store_true",
        help="also verify vLLM's own prefix caching against the same control",
    )
    cache.add_argument("--kv-connector-module-path", metavar="MODULE", help=argparse.SUPPRESS)
    cache.add_argument("--kv-connector-extra-config", type=Path, help=argparse.SUPPRESS)
    cache.add_argument(
        "--cache-gib",
        type=int,
        default=verify_request.DEFAULT_CACHE_GIB,
        metavar="N",
        help="GiB for an LMCache server (default: 2)",
    )
    cache.add_argument(
        "--cpu-kv-gib",
        type=int,
        default=verify_request.DEFAULT_CPU_KV_GIB,
        metavar="N",
        help="GiB for vLLM's own KV cache on a CPU (default: 2)",
    )
    cache.add_argument(
        "--accept-deviation",
        action="append",
        default=[],
        metavar="WHAT",
        help=f"accept what is not stock: {', '.join(contracts.DEVIATIONS)}; the report says so",
    )

    probes = parser.add_argument_group("probes")
    probes.add_argument(
        "--suite", default="standard", metavar="NAME", help="standard, smoke or acceptance"
    )
    probes.add_argument("--fixture", type=Path, metavar="FILE", help="for the acceptance suite")
    probes.add_argument(
        "--prompt-format",
        metavar="NAME",
        help="raw, chat or both (default: both for standard, chat otherwise)",
    )
    probes.add_argument(
        "--reuse-counts", default="1,3", metavar="LIST", help="distinct positive integers"
    )
    probes.add_argument(
        "--max-tokens", type=int, default=verify_request.DEFAULT_MAX_TOKENS, metavar="N"
    )
    probes.add_argument("--seed", type=int, default=0, metavar="N")
    probes.add_argument(
        "--tenant",
        default=verify_request.DEFAULT_TENANT,
        metavar="NAME",
        help="part of every probe's cache scope",
    )

    engine = parser.add_argument_group("engine")
    engine.add_argument("--dtype", default=verify_request.DEFAULT_DTYPE, metavar="NAME")
    engine.add_argument(
        "--gpu-memory-utilization",
        default=str(verify_request.DEFAULT_GPU_MEMORY),
        metavar="SHARE",
        help="strictly between 0 and 1 (default: 0.45)",
    )
    engine.add_argument(
        "--max-model-len", type=int, metavar="N", help="default: the model's own limit"
    )
    engine.add_argument(
        "--block-size", type=int, default=verify_request.DEFAULT_BLOCK_TOKENS, metavar="N"
    )
    engine.add_argument(
        "--chunk-size",
        type=int,
        metavar="N",
        help="asserts LMCache's resolved chunk size; sets an LMCache server's; with no "
        "connector, the span of the probes, a multiple of the block size",
    )

    parser.add_argument("--report", type=Path, metavar="FILE", help="JSON, must not exist")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="resolve everything and print the probe manifest; verifies nothing",
    )
    parser.add_argument("--spec", type=Path, metavar="FILE", help="take all of it from a run spec")
    parser.add_argument("--out", type=Path, metavar="DIR", help="with --spec: the run folder")


def run(args: argparse.Namespace) -> int:
    """Verify, print the summary; return the exit status of the report."""
    from kvseal.cli.execution import prepare_verifier

    spec, request = _from_spec(args) if args.spec is not None else (None, _from_options(args))
    verify_request.check(request)
    prepare_verifier()
    from kvseal.drivers.verify import evidence, preflight
    from kvseal.drivers.verify.run import run as verify

    places = None
    if not args.dry_run:
        places = evidence.beside(args.report) if args.spec is None else evidence.within(args.out)
    prepared = preflight.prepare(request)
    if places is None:
        print(json.dumps(prepared.dry_run(), indent=2, ensure_ascii=False))
        return 0
    report = verify(prepared, places, spec=spec)
    return _shown(report, places.report)


def _shown(report: dict[str, Any], path: Path) -> int:
    from kvseal.report.verification import console

    print(console(report, str(path)))
    return int(report["exit_status"])


def _from_options(args: argparse.Namespace) -> VerifyRequest:
    for option, value, remedy in (
        ("--model", args.model, "name a model"),
        ("--kv-connector", args.kv_connector, "none tests vLLM's own prefix caching"),
        ("--report", args.report or args.dry_run, "name the JSON file to write"),
    ):
        if not value:
            raise OptionError("a required option is missing", option=option, remedy=remedy)
    if args.out is not None:
        raise OptionError(
            "only a run spec's run has a run folder",
            option="--out",
            value=str(args.out),
            expected="--out with --spec, --report without",
            remedy="leave it out",
        )
    _refuse_extras(args)
    return VerifyRequest(
        model=args.model,
        model_revision=args.model_revision or "",
        tokenizer=args.tokenizer or args.model,
        # Of another tokenizer the model's revision says nothing.
        tokenizer_revision=args.tokenizer_revision
        or ("" if args.tokenizer else args.model_revision or ""),
        kv_connector=args.kv_connector,
        contract=args.evidence_contract,
        lmcache_config=args.lmcache_config,
        compare_native=args.compare_native,
        native_prefix_caching=args.native_prefix_caching,
        fixture=args.fixture,
        suite=args.suite,
        prompt_format=args.prompt_format,
        reuse_counts=verify_request.parse_reuse_counts(args.reuse_counts),
        max_tokens=args.max_tokens,
        seed=args.seed,
        dtype=args.dtype,
        gpu_memory_utilization=verify_request.parse_utilization(args.gpu_memory_utilization),
        max_model_len=args.max_model_len,
        block_size=args.block_size,
        chunk_size=args.chunk_size,
        tenant=args.tenant,
        cache_gib=args.cache_gib,
        cpu_kv_gib=args.cpu_kv_gib,
        accepted_deviations=tuple(args.accept_deviation),
    )


def _refuse_extras(args: argparse.Namespace) -> None:
    """Refuse ways to load another connector, or the known one differently."""
    if args.kv_connector_module_path is not None:
        raise OptionError(
            "only a connector that an evidence contract names can be verified",
            option="--kv-connector-module-path",
            value=args.kv_connector_module_path,
            expected="no such option: the contract says which module is loaded",
            remedy="leave it out",
        )
    path = args.kv_connector_extra_config
    if path is None:
        return
    from kvseal.canonical import loads_strict

    value: object
    try:
        value = loads_strict(path.read_bytes())
    except (OSError, EvidenceError) as error:
        value = f"{path}: {error}"
    if value != {}:
        raise OptionError(
            "no evidence contract covers extra configuration of a connector",
            option="--kv-connector-extra-config",
            value=value,
            expected="no such option, or an empty object",
            remedy="leave it out",
        )


def _from_spec(args: argparse.Namespace) -> tuple[VerifySpec, VerifyRequest]:
    from kvseal.drivers.verify.from_spec import request_of

    if args.out is None and not args.dry_run:
        raise OptionError("--spec needs a run folder", option="--out", remedy="name a new folder")
    for option, value in (("--model", args.model), ("--report", args.report)):
        if value is not None:
            raise OptionError(
                "a run spec says everything", option=option, value=str(value), remedy="leave it out"
            )
    spec = VerifySpec.load(args.spec)
    return spec, request_of(spec)
