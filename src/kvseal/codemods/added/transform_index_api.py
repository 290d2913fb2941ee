# SPDX-License-Identifier: Apache-2.0
"""HTTP endpoints of the variant index, added by kvseal.

- `PUT /transform/index/{cache_salt_sha256}/{recipe_sha256}/{manifest_sha256}`: list a
  manifest, whose canonical bytes are the body.
- `GET /transform/index/{cache_salt_sha256}/{recipe_sha256}`: all manifests of a recipe.
- `DELETE` of the path that was PUT.

Found by LMCache as every module here that ends in `_api`. A tenant is named by
the SHA-256 of its cache salt, so that no salt is in a log of this server. What
they do is `lmcache/v1/transform_index.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from lmcache.v1 import transform_index, transform_index_store

router = APIRouter()

# A wrong setting keeps the server from starting.
_index = transform_index.Index.of_environment()

PATH = "/transform/index/{salt}/{recipe}"


@router.put(PATH + "/{manifest}")
async def publish(salt: str, recipe: str, manifest: str, request: Request) -> Any:
    """Answer how many variants the recipe has now."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > transform_index_store.MAX_ENTRY_BYTES:
            break
    return await _answer(_index.publish, salt, recipe, manifest, bytes(body))


@router.get(PATH)
async def find(salt: str, recipe: str) -> Any:
    """Answer the record of the recipe; without variants where none is known."""
    return await _answer(_index.find, salt, recipe)


@router.delete(PATH + "/{manifest}")
async def remove(salt: str, recipe: str, manifest: str) -> Any:
    """Answer {"deleted": 0 or 1}."""
    return await _answer(_index.remove, salt, recipe, manifest)


async def _answer(act: Callable[..., Any], *arguments: Any) -> Any:
    try:
        result = await run_in_threadpool(act, *arguments)
    except transform_index_store.RefusedError as error:
        return JSONResponse(status_code=error.status, content={"error": str(error)})
    except OSError as error:
        return JSONResponse(status_code=500, content={"error": f"variant index: {error}"})
    if isinstance(result, bytes):
        return Response(content=result, media_type="application/json")
    return result
