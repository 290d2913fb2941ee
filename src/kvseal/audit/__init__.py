# SPDX-License-Identifier: Apache-2.0
"""What is in an L2 store of LMCache: read without LMCache, judged by names, nothing ever written.

    key_text   what LMCache's adapters write, taken apart and put together
    stores/    one reader a kind of store; they list, and read, and do nothing else
    index      the folder of the variant index: which variants have a manifest
    classify   each entry has exactly one class, and a code where it is not in order
    shadow     ordinary entries that stand for the same tokens as a variant's
    summary    counts that stay small however large the store is
    run, text  the whole audit, and what it says on a terminal

An audit says what a name claims and what it contradicts; whether the KV behind
it is right only a reader of the KV can say. Called by kvseal.cli.audit.
"""
