# SPDX-License-Identifier: Apache-2.0
"""HTTP endpoints for leases of request-local transformed KV, added by kvseal.

- `DELETE /transform/leases/{variant}`: end the lease, delete the entries.
- `GET /transform/leases`: allowed scopes, time limit, counts; no variant's text.

Found by LMCache as every module here that ends in `_api`. Whoever knows the
text of a request-local variant, which is random, may end its lease.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

router = APIRouter()


@router.delete("/transform/leases/{variant}")
async def end_lease(variant: str, request: Request) -> Any:
    """Answer {"deleted": entries}; 400 for a text that is no request-local variant."""
    engine = getattr(request.app.state, "engine", None)
    if engine is None:
        return JSONResponse(status_code=503, content={"error": "engine not initialized"})
    try:
        deleted = await run_in_threadpool(engine.storage_manager.end_lease, variant)
    except ValueError as error:
        return JSONResponse(status_code=400, content={"error": str(error)})
    return {"deleted": deleted}


@router.get("/transform/leases")
async def lease_status(request: Request) -> Any:
    """Answer one status for each L1."""
    engine = getattr(request.app.state, "engine", None)
    if engine is None:
        return JSONResponse(status_code=503, content={"error": "engine not initialized"})
    return {"l1": engine.storage_manager.lease_status()}
